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

// TestAnOldSessionsAnswerSpoilsNoLookOfTheNext: (1) a broker is elected, and the answer that says so is late. (2) Its session expires, and
// with the next one it asks who is the controller. (3) The late answer makes the old session look, in vain as it is over. That must not
// outdate the new session's look, which is under way: nobody would look any more, nor stand.
func TestAnOldSessionsAnswerSpoilsNoLookOfTheNext(t *testing.T) {
	c := newCluster(t, 3)
	boss := controllerOf(t, c)
	heir, third := boss%3+1, (boss+1)%3+1
	c.kill(third)
	c.kill(boss)
	elected := c.takeNext(heir, "multi", coord.ControllerPath)
	c.awaitTaken(elected)
	look := c.takeNext(heir, "get", coord.ControllerPath)
	c.model.ExpireSession(c.nodes[heir].client.Session())
	c.awaitTaken(look)
	elected.give()
	c.advance(time.Second)
	look.give()
	c.advance(10 * time.Second)
	if got := controllerOf(t, c); got != heir {
		t.Fatalf("broker %d is the controller, want %d\n%s", got, heir, c.reports())
	}
}
