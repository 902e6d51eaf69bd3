package words

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

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

func TestAShellReadsACommandAsItWas(t *testing.T) {
	want := []string{"/a b/c", "--set", "x=1,2", "it's", "", "$HOME", "a|b", "{a,b}", "!!", "~", "ä"}
	out, err := exec.Command("sh", "-c", `printf '%s\n' `+Command(want...)).Output()
	if got := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n"); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if got := Command("tidemark", "run", "flush", "--set", "acks=1"); got != "tidemark run flush --set acks=1" {
		t.Errorf("%s: quoted without need", got)
	}
}
