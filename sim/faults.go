package sim

import (
	"math/rand/v2"
	"time"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// scheduleFault draws when the next fault comes.
func (w *World) scheduleFault() {
	if w.healed {
		return
	}
	w.fault = w.after(nil, w.between(w.cfg.faultEvery/10, 3*w.cfg.faultEvery), func() {
		w.drawFault()
		w.scheduleFault()
	})
}

func (w *World) drawFault() {
	i := w.live
	if i == nil || i.stopping {
		return
	}
	switch w.rng.IntN(6) {
	case 0, 1, 2:
		if w.cfg.kills || w.cfg.powerCuts {
			w.drawCrash(i)
		}
	case 3:
		if w.cfg.shutdowns && i.open {
			w.shutdown()
		}
	case 4:
		if w.cfg.brokenConns && len(w.conns) > 0 {
			w.trace.probe("connection broken")
			pick(w.rng, w.conns...).breakDown()
		}
	case 5:
		if w.cfg.ioErrors && i.open && i.fail == nil {
			i.fail = drawFailure(w.rng)
			w.after(&i.process, w.between(50*time.Millisecond, time.Second), func() { // somebody notices, and restarts it
				if i.down || i.fail == nil {
					w.crash(w.drawPower() && w.chance(2)) // most often the machine runs on, and what the disk did not get is still read
				}
			})
		}
	}
}

func drawFailure(rng *rand.Rand) *failure {
	f := &failure{in: 1 + rng.Int64N(30), kinds: pick(rng,
		[]vfs.OpKind{vfs.OpWrite}, []vfs.OpKind{vfs.OpSync, vfs.OpSyncEnd, vfs.OpSyncDir, vfs.OpSyncDirEnd},
		[]vfs.OpKind{vfs.OpOpen, vfs.OpRename, vfs.OpRemove}, []vfs.OpKind{vfs.OpRead})}
	if rng.IntN(3) == 0 {
		f.err = vfs.ErrNoSpace
	}
	if f.kinds[0] == vfs.OpSync { // there are few
		f.in = 1 + f.in%5
	}
	return f
}

func (w *World) drawPower() bool {
	return w.cfg.powerCuts && (!w.cfg.kills || w.chance(2))
}

// drawCrash lets the process die now, or in one of its next operations on the disk.
func (w *World) drawCrash(i *incarnation) {
	power := w.drawPower()
	if w.chance(4) {
		w.trace.probe("crash between operations")
		w.crash(power)
		return
	}
	if i.crashIn == 0 {
		i.crashIn, i.power = 1+w.rng.Int64N(pick(w.rng, int64(5), 40, 200)), power
	}
}

// crashed is the event loop's answer to a crash mark.
func (w *World) crashed(m crashMark) {
	if m.owner != w.live || m.owner.dead {
		return
	}
	switch {
	case !m.owner.open && !m.owner.stopping:
		w.trace.probe("crash while starting")
	case m.owner.stopping:
		w.trace.probe("crash while shutting down")
	}
	w.crash(m.owner.power)
}

func (w *World) kill() { w.crash(false) }

// crash ends the broker's life, with or without what was not synced.
func (w *World) crash(power bool) {
	i := w.live
	if i == nil {
		return
	}
	w.end()
	if power {
		w.cutPower()
	} else {
		w.trace.probe("kill")
		if i.unsynced {
			w.trace.probe("restart on the same boot after a failed sync")
		}
		w.trace.say(w.now, "kill")
		w.disk.Kill()
	}
	w.restart()
}

func (w *World) end() {
	w.endLife()
	for _, c := range w.conns {
		w.after(nil, w.latency(), c.breakDown)
	}
}

func (w *World) cutPower() {
	w.powerCut = true
	lost := w.disk.Crash(w.rng)
	w.trace.probe("power cut")
	if lost.SectorsLost > 0 {
		w.trace.probe("power cut that lost sectors")
	}
	if lost.NamesLost > 0 {
		w.trace.probe("power cut that lost names")
	}
	w.trace.say(w.now, "power cut: %s", lost.String())
}

func (w *World) restart() {
	w.after(nil, w.between(5*time.Millisecond, 300*time.Millisecond), w.boot)
}

// shutdown ends a life in order. What was acknowledged is durable after it,
// whatever the policy.
func (w *World) shutdown() {
	i := w.live
	i.stopping = true
	w.trace.say(w.now, "shutdown begins")
	i.broker.Shutdown(func(err error) {
		w.after(&i.process, 0, func() {
			w.end()
			if err != nil && !i.injected {
				w.violated("a shutdown fails: %v", err)
				return
			}
			w.trace.probe("clean shutdown")
			w.trace.say(w.now, "shutdown done")
			w.disk.Kill()
			if err == nil && !i.down {
				for _, p := range w.partitions {
					p.AllDurable()
				}
			}
			if w.cfg.powerCuts && w.chance(2) {
				w.trace.probe("power cut right after a clean shutdown")
				w.cutPower()
			}
			w.restart()
		})
	})
}
