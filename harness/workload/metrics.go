package workload

import "slices"

// MetricNames lists the metrics that a kind gives, as said at the kinds: a spec's
// tests and figures are held against it before anything runs.
func MetricNames(kind Kind) []string {
	broker := []string{"cpu-sec/GB", "cpu-share", "broker-rss-bytes", "ctx-switches/s", "device-read-bytes/s", "device-write-bytes/s", "copied-bytes/byte", "syscalls/MB"}
	produce := []string{"bytes/s", "payload-bytes/s", "records/s", "requests/s", "p50-sec", "p99-sec", "p999-sec", "max-sec"}
	switch kind {
	case Produce:
		return slices.Concat(broker, produce)
	case Consume:
		return slices.Concat(broker, []string{"bytes/s", "records/s", "requests/s", "p50-sec", "p99-sec"})
	case EndToEnd:
		return slices.Concat(broker, []string{"bytes/s", "records/s", "p50-sec", "p99-sec", "p999-sec", "ack-p50-sec", "ack-p99-sec"})
	case Compression:
		return slices.Concat(broker, produce, []string{"wire-bytes/payload-byte", "disk-bytes/payload-byte", "client-cpu-sec/GB"})
	case Device:
		return []string{"bytes/s", "ops/s", "p50-sec", "p99-sec"}
	case Growth:
		return slices.Concat(broker, []string{"append-bytes/s", "append-records/s", "append-p99-sec", "read-p50-sec", "read-p99-sec", "reads/s", "disk-bytes/byte"})
	case Loss:
		return slices.Concat(broker, []string{"records/s", "acked-records", "lost-acked-records", "lost-sent-records", "recovery-sec"})
	case Recovery:
		return slices.Concat(broker, []string{"recovery-sec", "index-bytes", "log-bytes", "index-bytes/GB", "seek-p50-sec", "seek-p99-sec"})
	case Idle:
		return slices.Concat(broker, []string{"broker-rss-bytes", "ready-sec", "reopen-sec"})
	}
	return nil
}
