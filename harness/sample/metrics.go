package sample

import "time"

// Metrics gives what happened between two snapshots under the names of
// workload.Result. bytes is the record bytes that the driver moved meanwhile;
// when delivered is true, the broker's own count of bytes delivered is taken instead.
func Metrics(from, to Snapshot, bytes int64, delivered bool) map[string]float64 {
	seconds := to.At.Sub(from.At).Seconds()
	if seconds <= 0 {
		return nil
	}
	m := map[string]float64{
		"cpu-share":             (to.CPU - from.CPU).Seconds() / seconds,
		"broker-rss-bytes":      float64(max(from.RSS, to.RSS)),
		"broker-rss-anon-bytes": float64(max(from.RSSAnon, to.RSSAnon)),
		"ctx-switches/s":        float64(to.Switches-from.Switches) / seconds,
		"device-read-bytes/s":   float64(to.Read-from.Read) / seconds,
		"device-write-bytes/s":  float64(to.Written-from.Written) / seconds,
		"system-dirty-bytes":    float64(to.System.Dirty),
		"writeback-bytes/s":     float64(to.System.WrittenBack-from.System.WrittenBack) / seconds,
	}
	for _, resource := range []string{"cpu", "io", "memory"} {
		if stall, ok := to.System.Stall[resource]; ok {
			m[resource+"-stall-share"] = share(stall-from.System.Stall[resource], seconds)
		}
	}
	b := Counters{}
	if from.Broker != nil && to.Broker != nil {
		b = Counters{
			ToUser: to.Broker.ToUser - from.Broker.ToUser, ToKernel: to.Broker.ToKernel - from.Broker.ToKernel,
			InKernel: to.Broker.InKernel - from.Broker.InKernel, Delivered: to.Broker.Delivered - from.Broker.Delivered,
		}
	}
	if delivered && b.Delivered > 0 {
		bytes = b.Delivered
	}
	if bytes <= 0 {
		return m
	}
	m["cpu-sec/GB"] = (to.CPU - from.CPU).Seconds() / (float64(bytes) / 1e9)
	if from.Broker != nil && to.Broker != nil {
		m["copied-bytes/byte"] = float64(b.ToUser+b.ToKernel) / float64(bytes)
		m["syscalls/MB"] = float64(to.Broker.Calls()-from.Broker.Calls()) / (float64(bytes) / 1e6)
	}
	return m
}

func share(d time.Duration, seconds float64) float64 { return d.Seconds() / seconds }
