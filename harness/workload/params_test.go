package workload

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestSetReadsUnitsAndRefusesWhatItDoesNotKnow(t *testing.T) {
	p := DefaultParams()
	for _, kv := range [][2]string{{"kind", "produce"}, {"data_bytes", "64MiB"}, {"records_per_s", "50_000"}, {"linger_ms", "0.5"}, {"measure", "3s"}, {"batch_bytes", "1_000"}} {
		if err := p.Set(kv[0], kv[1]); err != nil {
			t.Errorf("Set(%s, %s): %v", kv[0], kv[1], err)
		}
	}
	if p.DataBytes != 64<<20 || p.RecordsPerS != 50_000 || p.Linger != 500*time.Microsecond || p.Measure != 3*time.Second || p.BatchBytes != 1000 {
		t.Errorf("got %+v", p)
	}
	if err := p.Check(); err != nil {
		t.Error(err)
	}
	for _, kv := range [][2]string{{"record_byts", "1"}, {"acks", "2"}, {"entropy", "9"}, {"data_bytes", "9GB"}, {"data_bytes", "99999999999GiB"}, {"measure", "3"}} {
		err := p.Set(kv[0], kv[1])
		if err == nil || !strings.Contains(err.Error(), kv[0]) {
			t.Errorf("Set(%s, %s) = %v, want an error that names the key", kv[0], kv[1], err)
		}
	}
}

func TestEveryKindIsAccepted(t *testing.T) {
	for _, kind := range kinds() {
		p := DefaultParams()
		p.RecordsPerS = 1
		if err := p.Set("kind", kind); err != nil {
			t.Error(err)
		}
		if slices.Contains(clusterKinds, Kind(kind)) {
			p.Brokers, p.ReplicationFactor, p.Measure = 3, 3, 20*time.Second
		}
		if err := p.Check(); err != nil {
			t.Error(err)
		}
	}
}

func TestAKindThatNeedsAnotherClusterIsRefused(t *testing.T) {
	for want, change := range map[string]func(*Params){
		"needs a cluster":               func(p *Params) { p.Kind, p.Brokers, p.ReplicationFactor = RackRead, 1, 1 },
		"needs replication_factor >= 2": func(p *Params) { p.Kind, p.ReplicationFactor = Failover, 1 },
		"runs on a cluster of one":      func(p *Params) { p.Kind = Recovery },
		"the cluster has 3 brokers":     func(p *Params) { p.ReplicationFactor = 4 },
		"a cluster of 0 brokers":        func(p *Params) { p.Brokers, p.ReplicationFactor = 0, 0 },
		"needs records_per_s, and acks": func(p *Params) { p.Kind, p.Acks, p.RecordsPerS = LeaderKill, "0", 10 },
		"must lie within measure 8s":    func(p *Params) { p.Kind, p.RecordsPerS, p.Measure = LeaderKill, 10, 8*time.Second },
	} {
		p := DefaultParams()
		p.Kind, p.Brokers, p.ReplicationFactor = Produce, 3, 3
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
		change(&p)
		if err := p.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want …%s…", err, want)
		}
	}
}

func TestGrowthMeasuresEnoughToMeanSomething(t *testing.T) {
	for data, want := range map[int64]int64{1: 1, 8 << 20: 4 << 20, 32 << 20: 16 << 20, 100 << 20: 16 << 20, 1 << 30: 1 << 30 / 10} {
		if got := (&Params{DataBytes: data}).measuredBytes(); got != want {
			t.Errorf("of %d bytes %d are measured, want %d", data, got, want)
		}
	}
}
