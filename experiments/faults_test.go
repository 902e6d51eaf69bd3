package experiments

import (
	"strings"
	"testing"
	"time"
)

const b1 = `
entry     = "B1"
says      = "truncation to the high watermark loses what was acknowledged"
rules_off = ["truncate-by-epoch", "truncate-on-fetch"]
breaks    = ["S4", "S5"]
witness   = ["truncation that dropped records"]
settings  = { "min.insync.replicas" = "2" }

[[steps]]
fault  = "partition"
target = "leader of t/0"
with   = "brokers"
at     = "5s"
for    = "20s"

[[steps]]
fault  = "kill"
target = "leader of t/0"
after  = "truncation that dropped records"
wait   = "10ms"
`

func TestAScenarioIsReadWhole(t *testing.T) {
	s, err := ParseScenario("b1", []byte(b1))
	if err != nil {
		t.Fatal(err)
	}
	target, with := s.Steps[0].Targets()
	if target.String() != "leader of t/0" || with.Role != RoleBrokers || s.Steps[0].At != 5*time.Second || s.Steps[0].For != 20*time.Second {
		t.Errorf("first step %+v", s.Steps[0])
	}
	if s.Brokers != 3 || s.Replicas != 3 || s.Envelope != E0 || s.Steps[1].Wait != 10*time.Millisecond || s.Steps[1].After == "" {
		t.Errorf("scenario %+v", s)
	}
}

func TestABadScenarioIsAnErrorThatSaysWhere(t *testing.T) {
	for _, f := range []struct{ from, to, want string }{
		{`"partition"`, `"divide"`, `b1.toml:9: fault "divide"`},
		{`"leader of t/0"` + "\nwith", `"leader t/0"` + "\nwith", "b1.toml:9: target"},
		{`with   = "brokers"` + "\n", "", "with is missing"},
		{`wait   = "10ms"`, `with = "broker 1"`, "b1.toml:16: fault kill: has no use for with"},
		{`at     = "5s"`, `at = "soon"`, `at = "soon": want a duration`},
		{`says  `, `sayz  `, "unknown key sayz"},
		{`fault  = "kill"`, `fault  = "power-off"`, "E0 allows no lossy fault"},
		{`fault  = "kill"`, `fault  = "hold"` + "\nwith = \"broker 2\"", "fault hold: message is missing"},
		{`wait   = "10ms"`, `message = "Fetch"`, "fault kill: has no use for message"},
		{`fault  = "kill"`, `fault  = "reassign"`, "fault reassign: want a partition as target, and replicas"},
		{`fault  = "kill"`, `fault  = "demand"`, "fault demand: want when, for and message"},
		{`entry `, "assignment = [1, 2]\nentry ", "assignment [1 2]"},
		{`entry `, "replicas = 4\nentry ", "4 replicas on 3 brokers"},
	} {
		text := strings.Replace(b1, f.from, f.to, 1)
		if text == b1 {
			t.Fatalf("%q is not there", f.from)
		}
		if _, err := ParseScenario("b1", []byte(text)); err == nil || !strings.Contains(err.Error(), f.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q → %q: %v", f.from, f.to, err)
		}
	}
}

func TestTargetsAreReadAsTheyAreWritten(t *testing.T) {
	for _, text := range []string{"broker 2", "leader of orders/3", "follower of t/0", "lagging of t/0", "partition t/1", "controller", "producer 0", "consumer 1", "coordination", "brokers"} {
		if got, err := ParseTarget(text); err != nil || got.String() != text {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "broker", "broker x", "broker -1", "leader t/0", "leader of t", "leader of /0", "partition of t/0", "controller 1", "king"} {
		if got, err := ParseTarget(text); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}
