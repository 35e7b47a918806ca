// Grafana's outlier detectors over sliding intervals of one metric, request by request.
//
// node augurs.mjs FOLDER            FOLDER: the npm package @bsull/augurs
//
// Standard input, repeated: a line of JSON {kind, sensitivities, series, samples, interval, hop}, then
// series x samples float64, little-endian, NaN where a sample is missing. Standard output for each: a line of JSON
// {looks}, then sensitivities x series x looks float64; or {error}. A look ends every hop samples and sees the last
// interval of them, from half an interval on. Its number says how far a series lies outside the detector's band, in
// widths of the band, on average over the newest hop samples: 0 where it is an outlier in at most half of them, NaN where
// it has no sample.

import { readFileSync, readSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';

const folder = process.argv[2];
const augurs = await import(pathToFileURL(join(folder, 'outlier.js')));
await augurs.default({ module_or_path: readFileSync(join(folder, 'outlier_bg.wasm')) });

function read(bytes) {
  const buffer = Buffer.alloc(bytes);
  for (let done = 0; done < bytes; ) {
    const count = readSync(0, buffer, done, bytes - done);
    if (count === 0) return null;
    done += count;
  }
  return buffer;
}

function readLine() {
  const bytes = [];
  for (let byte = read(1); byte !== null; byte = read(1)) {
    if (byte[0] === 10) return Buffer.from(bytes).toString();
    bytes.push(byte[0]);
  }
  return null;
}

function write(buffer) {
  for (let done = 0; done < buffer.length; ) done += writeSync(1, buffer, done);
}

/** What one look says of each series at each sensitivity: into ``out[sensitivity][series]``. */
function look(kind, sensitivities, rows, newest, put) {
  const present = rows.map((row) => row.subarray(row.length - newest).filter((value) => !Number.isNaN(value)).length);
  let loaded;
  try {
    loaded = new augurs.OutlierDetector(kind, { sensitivity: sensitivities[0] }).preprocess(rows);
  } catch {
    // It refuses data without any spread: nothing is an outlier to it.
    sensitivities.forEach((_, s) => rows.forEach((_, r) => put(s, r, present[r] ? 0 : NaN)));
    return;
  }
  for (const [s, sensitivity] of sensitivities.entries()) {
    loaded.updateDetector({ sensitivity });
    const { seriesResults, clusterBand } = loaded.detect();
    for (const [r, row] of rows.entries()) {
      const first = row.length - newest;
      let count = 0;
      let beyond = 0;
      for (const { start, end } of seriesResults[r].outlierIntervals) {
        for (let at = Math.max(start, first); at < (end ?? row.length); at++) {
          const low = clusterBand?.min[at];
          const high = clusterBand?.max[at];
          // Without a cluster of more than half all are outliers, and nobody is the odd one.
          if (!(high > low) || Number.isNaN(row[at])) continue;
          count += 1;
          beyond += Math.max(low - row[at], row[at] - high, 0) / (high - low);
        }
      }
      put(s, r, present[r] === 0 ? NaN : 2 * count > present[r] ? beyond / count : 0);
    }
  }
  loaded.free();
}

for (let line = readLine(); line !== null; line = readLine()) {
  const { kind, sensitivities, series, samples, interval, hop } = JSON.parse(line);
  const data = read(series * samples * 8);
  if (data === null) break;
  try {
    const values = new Float64Array(data.buffer, data.byteOffset, series * samples);
    const looks = Math.floor(samples / hop);
    const out = new Float64Array(sensitivities.length * series * looks).fill(NaN);
    for (let number = 0; number < looks; number++) {
      const end = (number + 1) * hop;
      if (2 * end < interval) continue;
      const start = Math.max(end - interval, 0);
      const rows = Array.from({ length: series }, (_, r) => values.slice(r * samples + start, r * samples + end));
      look(kind, sensitivities, rows, hop, (s, r, value) => {
        out[(s * series + r) * looks + number] = value;
      });
    }
    write(Buffer.from(`${JSON.stringify({ looks })}\n`));
    write(Buffer.from(out.buffer));
  } catch (error) {
    write(Buffer.from(`${JSON.stringify({ error: String(error) })}\n`));
  }
}
