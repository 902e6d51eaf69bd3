package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// wired is a world of nothing but a network of three ends.
func wired() (b *base, log *[]string) {
	w := newBase(1, clusterProbes(), nil)
	w.net = newNetwork(&w, 3)
	return &w, new([]string)
}

func (b *base) runFor(d time.Duration) {
	end := b.now + d
	for b.step(end, nil) {
	}
	b.now = end
}

// TestACutLinkHoldsMessagesInOrderOneWay: and lets them through when it is mended.
func TestACutLinkHoldsMessagesInOrderOneWay(t *testing.T) {
	b, log := wired()
	c := &conn{w: b, from: 1, to: &incarnation{node: &node{w: b, end: 2}}}
	send := func(text string) {
		c.arrives = max(c.arrives, b.now+c.latency(true))
		c.rise(c.arrives-b.now, func() { *log = append(*log, text) })
	}
	b.net.cut(1, 2)
	send("a")
	send("b")
	b.transit(2, 1, nil, time.Millisecond, func() { *log = append(*log, "back") })
	b.runFor(time.Second)
	if got := strings.Join(*log, " "); got != "back" {
		t.Fatalf("over a link that is cut one way came %q", got)
	}
	b.net.mend(1, 2)
	send("c")
	b.runFor(time.Second)
	if got := strings.Join(*log, " "); got != "back a b c" {
		t.Errorf("after it was mended came %q", got)
	}
	b.net.cut(1, 2)
	b.net.cut(1, 2)
	send("d")
	b.runFor(time.Second)
	b.net.mend(1, 2)
	b.runFor(time.Second)
	if !b.net.blocked(1, 2) || len(*log) != 4 {
		t.Errorf("two faults cut a link, and one mend makes it whole: %q", *log)
	}
	b.net.mendAll()
	b.runFor(time.Second)
	if b.net.blocked(1, 2) || len(*log) != 5 {
		t.Errorf("mendAll leaves a link cut: %q", *log)
	}
}

// TestASlowLinkIsSlow: only its own messages are late.
func TestASlowLinkIsSlow(t *testing.T) {
	b, _ := wired()
	b.net.link(1, 2).slow = time.Second
	if slow, fast := b.net.latency(1, 2), b.net.latency(2, 1); slow < 500*time.Millisecond || fast > 10*time.Millisecond {
		t.Errorf("a slow link takes %v, the other %v", slow, fast)
	}
}

// TestAPausedProcessGoesOnWhereItStood: nothing of it happens meanwhile, then all in order.
func TestAPausedProcessGoesOnWhereItStood(t *testing.T) {
	b, log := wired()
	var p process
	note := func(text string) func() { return func() { *log = append(*log, fmt.Sprint(text, " at ", b.now)) } }
	b.after(&p, 10*time.Millisecond, note("x"))
	stopped := b.after(&p, 11*time.Millisecond, note("y"))
	b.after(&p, 12*time.Millisecond, note("z"))
	b.after(nil, 13*time.Millisecond, note("world"))
	b.pause(&p)
	b.runFor(50 * time.Millisecond)
	if !b.stop(stopped) || b.stop(stopped) {
		t.Error("an event that is held cannot be stopped, once")
	}
	b.resume(&p)
	b.runFor(time.Millisecond)
	if got := strings.Join(*log, ", "); got != "world at 13ms, x at 50ms, z at 50ms" {
		t.Error(got)
	}
}
