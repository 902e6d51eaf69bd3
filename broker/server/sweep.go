package server

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// The sweeper looks at every connection now and then, instead of a deadline set
// on each read and write: the hot path pays for two counters and no timer.
const sweepInterval = time.Second

var (
	errIdle    = errors.New("idle")
	errStalled = errors.New("the client does not read its answers")
	errPartial = errors.New("the client does not finish its request")
	errGone    = errors.New("the client has gone, and its requests are not answered")
)

// watch is what the sweeper remembers about a connection, to see progress.
type watch struct {
	read, written, answers int64     // bytes, bytes and answers when last looked at
	activeAt               time.Time // when anything last moved or was awaited
	progressAt             time.Time // when the write now going on last moved
	answerAt               time.Time // since when an answer, with what it pins, waits to be written
	arrivedAt              time.Time // when the request now half received last grew
	hereAt                 time.Time // when the client was last known to be there, or an answer went out
}

func (s *Server) sweepLoop() {
	interval := min(sweepInterval, s.options.IdleMax/4+1, s.options.StallMax/4+1)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			s.sweep(now)
		case <-s.stop:
			return
		}
	}
}

// sweep closes the connections that are overdue at now.
func (s *Server) sweep(now time.Time) {
	s.sweeping.Lock()
	defer s.sweeping.Unlock()
	for _, c := range s.connections() {
		if err := c.overdue(now); err != nil {
			c.end(err)
		}
	}
}

// overdue says why a connection should be closed for its client's silence, or nil.
func (c *conn) overdue(now time.Time) error {
	w := &c.watch
	if w.activeAt.IsZero() { // the first look: nothing has lasted yet
		w.activeAt, w.progressAt, w.answerAt, w.arrivedAt, w.hereAt = now, now, now, now, now
	}
	read, written := c.sock.bytesRead.Load(), c.sock.bytesWritten.Load()
	pipe := c.pipe.state()
	if read != w.read || written != w.written || pipe.inFlight > 0 {
		w.activeAt = now
	}
	if written != w.written || !pipe.writing {
		w.progressAt = now
	}
	if pipe.answers != w.answers || !pipe.waiting {
		w.answerAt = now
	}
	if read != w.read || !c.sock.holding.Load() {
		w.arrivedAt = now
	}
	// A reader that waits for room does not come to the end of the stream, and a long poll may last for weeks.
	if pipe.answers != w.answers || !pipe.admitting || !c.sock.peerClosed() {
		w.hereAt = now
	}
	w.read, w.written, w.answers = read, written, pipe.answers
	o := &c.server.options
	switch {
	case now.Sub(w.progressAt) >= o.StallMax:
		return fmt.Errorf("%w: no progress for %v", errStalled, o.StallMax)
	case now.Sub(w.answerAt) >= o.IdleMax:
		return fmt.Errorf("%w: an answer could not be written for %v", errStalled, o.IdleMax)
	case now.Sub(w.arrivedAt) >= o.StallMax:
		return fmt.Errorf("%w: nothing came for %v", errPartial, o.StallMax)
	case now.Sub(w.hereAt) >= o.StallMax:
		return fmt.Errorf("%w for %v", errGone, o.StallMax)
	case now.Sub(w.activeAt) >= o.IdleMax:
		return fmt.Errorf("%w for connections.max.idle.ms=%d", errIdle, o.IdleMax.Milliseconds())
	}
	return nil
}

// logLinesMax bounds the lines a second that connections can cause.
const logLinesMax = 20

// lineLimiter keeps a hostile client from filling the log.
type lineLimiter struct {
	mu         sync.Mutex
	second     int64
	lines      int
	suppressed int
}

// allow says whether a line may be logged at now, and how many were not before it.
func (l *lineLimiter) allow(now time.Time) (ok bool, suppressed int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := now.Unix(); s != l.second {
		l.second, l.lines = s, 0
	}
	if l.lines >= logLinesMax {
		l.suppressed++
		return false, 0
	}
	l.lines++
	suppressed, l.suppressed = l.suppressed, 0
	return true, suppressed
}

func (s *Server) logLine(text string, args ...any) {
	ok, suppressed := s.lines.allow(time.Now())
	if !ok {
		return
	}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	s.options.Log.Warn(text, args...)
}
