package broker_test

import (
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// TestALateLookAtTheControllerEndsNoTerm: (1) a broker asks who is the controller, and the answer, another one, is late. (2) That one
// dies, and this broker is elected. (3) The late answer comes: it holds the office still, so nobody else would take it.
func TestALateLookAtTheControllerEndsNoTerm(t *testing.T) {
	c := newCluster(t, 3, "min.insync.replicas=2")
	c.create("t", 1, 3)
	c.wantISR("t", 0, 3)
	boss := controllerOf(t, c)
	heir, third := boss%3+1, (boss+1)%3+1
	c.kill(heir)
	c.advance(10 * time.Second)
	var late func()
	c.start(heir, c.nodes[heir].disk).meddle = func(a answered) bool {
		if a.call != "get" || a.path != coord.ControllerPath || late != nil {
			return false
		}
		late = a.give
		return true
	}
	c.advance(10 * time.Second)
	c.kill(third)
	c.kill(boss)
	c.advance(10 * time.Second)
	if late == nil || controllerOf(t, c) != heir {
		t.Fatalf("broker %d is the controller, want %d\n%s", controllerOf(t, c), heir, c.reports())
	}
	late()
	c.start(boss, c.nodes[boss].disk)
	c.start(third, c.nodes[third].disk)
	c.advance(10 * time.Second)
	if controllerOf(t, c) != heir {
		t.Fatalf("broker %d has been elected, and %d was never gone", controllerOf(t, c), heir)
	}
	c.wantISR("t", 0, 3)
}
