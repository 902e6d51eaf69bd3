package workload

import "slices"

// MetricNames lists the metrics that a kind gives, as said at the kinds: a spec's
// tests and figures are held against it before anything runs.
func MetricNames(kind Kind) []string {
	process := []string{"cpu-share", "broker-rss-bytes", "broker-rss-anon-bytes", "ctx-switches/s", "device-read-bytes/s", "device-write-bytes/s"}
	broker := slices.Concat(process, []string{"cpu-sec/GB", "copied-bytes/byte", "syscalls/MB"})
	produce := []string{"bytes/s", "payload-bytes/s", "records/s", "requests/s", "p50-sec", "p99-sec", "p999-sec", "max-sec", "records/batch", "wire-bytes/payload-byte", "client-cpu-sec/GB"}
	switch kind {
	case Produce:
		return slices.Concat(broker, produce)
	case Consume:
		return slices.Concat(broker, []string{"bytes/s", "records/s", "requests/s", "p50-sec", "p99-sec"})
	case EndToEnd:
		return slices.Concat(broker, []string{"bytes/s", "records/s", "p50-sec", "p99-sec", "p999-sec", "ack-p50-sec", "ack-p99-sec"})
	case Compression:
		return slices.Concat(broker, produce, []string{"disk-bytes/payload-byte"})
	case Device:
		return []string{"bytes/s", "ops/s", "p50-sec", "p99-sec"}
	case Growth:
		return slices.Concat(broker, []string{"append-bytes/s", "append-records/s", "append-p50-sec", "append-p99-sec", "read-p50-sec", "read-p99-sec", "reads/s", "disk-bytes/byte"})
	case Loss:
		return slices.Concat(broker, []string{"records/s", "acked-records", "sent-records", "lost-acked-records", "lost-sent-records", "recovery-sec"})
	case Recovery:
		return []string{"recovery-sec", "index-bytes", "log-bytes", "index-bytes/GB", "seek-p50-sec", "seek-p99-sec", "seeks/s"}
	case Idle:
		return slices.Concat(process, []string{"ready-sec", "reopen-sec"})
	case LeaderKill:
		return []string{"unavailable-sec", "unavailable/bound", "lost-acked-records", "duplicated-records", "acked-records", "sent-records", "failed-records",
			"in-sync-again-sec", "under-replicated-sec", "p50-sec", "p99-sec", "p999-sec", "max-sec"}
	case Failover:
		return []string{"failover-sec", "failover/bound", "detect-sec", "first-leader-sec", "election-sec", "election-sec/partition", "election/published", "create-sec"}
	case RackRead: // with records_per_s, and without
		return slices.Concat(broker, []string{"bytes/s", "records/s", "p50-sec", "p99-sec", "near-p50-sec", "near-p99-sec", "ack-p50-sec", "ack-p99-sec", "requests/s", "busiest-share"})
	}
	return nil
}

// CheckNames lists the checks that a kind makes, where they apply: a spec's check list is
// held against it, since a check that nobody makes never fails.
func CheckNames(kind Kind) []string {
	switch kind {
	case Produce, EndToEnd, Compression, RackRead:
		return []string{"offsets-contiguous", "rate-sustained"}
	case Consume:
		return []string{"offsets-contiguous", "counts-match"}
	case Growth:
		return []string{"offsets-contiguous", "size-reached"}
	case Loss:
		return []string{"offsets-contiguous", "no-acked-record-lost"}
	case Recovery, LeaderKill:
		return []string{"no-acked-record-lost"}
	}
	return nil
}

// TimelineNames lists what a kind's timeline holds.
func TimelineNames(kind Kind) []string {
	if kind == LeaderKill {
		return []string{"acked-records/s"}
	}
	return nil
}
