package need

import "testing"

func TestASkipIsAFailureOnlyWhereAllIsRequiredAndItIsNotAllowed(t *testing.T) {
	for _, c := range []struct {
		requireAll, allow string
		want              bool
	}{
		{"", "", false},
		{"0", "", false},
		{"1", "", true},
		{"1", "java", true},
		{"1", "java,kcat", false},
		{"1", "java, kcat", false},
		{"1", "kcat2", true},
	} {
		if got := Required("kcat", c.requireAll, c.allow); got != c.want {
			t.Errorf("Required(kcat, %q, %q) = %v, want %v", c.requireAll, c.allow, got, c.want)
		}
	}
}
