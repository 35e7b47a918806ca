"""A simulated task as exporters show it, for a real Prometheus to scrape.

``live`` keeps the task going and says what each machine shows at a second, ``page`` writes that as dcgm-exporter and
node_exporter do, ``server`` answers over HTTP. Nothing here is used to watch a real task.
"""
