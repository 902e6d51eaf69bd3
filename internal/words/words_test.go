package words

import "testing"

func TestOneThingIsNotWrittenAsMany(t *testing.T) {
	for want, got := range map[string]string{
		"1 repeat": Count(1, "repeat"), "2 repeats": Count(2, "repeat"), "0 repeats": Count(int64(0), "repeat"),
		"1 batch": Count(1, "batch"), "3 batches": Count(3, "batch"), "2 entries": Count(2, "entry"),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
