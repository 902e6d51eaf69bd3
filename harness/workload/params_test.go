package workload

import (
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
		if err := p.Check(); err != nil {
			t.Error(err)
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
