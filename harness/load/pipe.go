package load

import (
	"context"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// exchange is one kind of request on one connection. request and answer are each
// called in order, but at a fixed rate from two goroutines: they share no state
// beyond what they guard themselves.
type exchange interface {
	// request gives the bytes of the next request, valid until the next call;
	// nil when nothing can be asked before an answer is in, or ever.
	request() []byte
	// answer takes a frame and says how many record bytes and records it stands for.
	answer(frame []byte) (bytes, records int64, err error)
}

// pipe keeps up to depth requests of one exchange in flight on one connection.
type pipe struct {
	conn    net.Conn
	frames  *Frames
	depth   int
	window  *Window
	latency *hdrhistogram.Histogram
	onStart func(time.Time) // told when the first request is due; may be nil
}

func (p *pipe) start() time.Time {
	p.window.Start(time.Now())
	now := time.Now() // starting may have taken a while: samplers look at the machine then
	if p.onStart != nil {
		p.onStart(now)
	}
	return now
}

// answerTimeout bounds the wait for one answer: a broker that hangs fails the run instead of hanging it.
const answerTimeout = 60 * time.Second

// closed sends the next request as soon as an answer is in. One goroutine does
// both, since a second would cost a wake-up per request: requests wait in the
// socket while the broker works.
func (p *pipe) closed(ctx context.Context, x exchange) error {
	sent := make([]time.Time, p.depth) // ring of the send times of what is in flight
	var head, tail int                 // sent[tail%depth] is the oldest
	p.start()
	for {
		for head-tail < p.depth {
			req := x.request()
			if req == nil {
				break
			}
			sent[head%p.depth] = time.Now()
			head++
			if _, err := p.conn.Write(req); err != nil {
				return fmt.Errorf("load: send: %w", err)
			}
		}
		if head == tail {
			return nil
		}
		if tail%256 == 0 { // a deadline per answer would cost more than the answer
			if err := ctx.Err(); err != nil {
				return err
			}
			p.conn.SetReadDeadline(time.Now().Add(answerTimeout))
		}
		over, err := p.receive(x, sent[tail%p.depth])
		tail++
		if err != nil || over {
			return err
		}
	}
}

// receive takes one answer to the request meant to be sent at intended.
func (p *pipe) receive(x exchange, intended time.Time) (over bool, err error) {
	frame, err := p.frames.Next()
	if err != nil {
		return false, fmt.Errorf("load: receive: %w", noEOF(err))
	}
	bytes, records, err := x.answer(frame)
	if err != nil {
		return false, err
	}
	now := time.Now()
	inside, over := p.window.Done(now, bytes, records)
	if inside {
		p.latency.RecordValue(max(1, now.Sub(intended).Microseconds()))
	}
	return over, nil
}

// open sends one request every interval whether or not answers come, and times
// each from the moment it was meant to leave. At most depth are in flight;
// what is due meanwhile leaves late, and its latency says so.
func (p *pipe) open(ctx context.Context, x exchange, interval time.Duration) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	intended := make(chan time.Time, p.depth)
	slots := make(chan struct{}, p.depth)
	sendErr := make(chan error, 1)
	start := p.start()
	go func() {
		defer close(intended)
		sendErr <- p.sendAtRate(ctx, x, start, interval, slots, intended)
	}()
	var err error
	over := false
	for due := range intended {
		p.conn.SetReadDeadline(time.Now().Add(answerTimeout))
		over, err = p.receive(x, due)
		<-slots
		if err != nil || over {
			break
		}
	}
	cancel()
	p.conn.SetWriteDeadline(time.Now()) // a send that waits for the broker ends now
	for range intended {
	}
	if e := <-sendErr; err == nil && !over {
		err = e
	}
	return err
}

func (p *pipe) sendAtRate(ctx context.Context, x exchange, start time.Time, interval time.Duration, slots chan<- struct{}, intended chan<- time.Time) error {
	for i := int64(0); ; i++ {
		due := start.Add(time.Duration(i) * interval)
		if err := sleepUntil(ctx, due); err != nil {
			return err
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return ctx.Err()
		}
		req := x.request()
		if req == nil {
			return nil
		}
		if _, err := p.conn.Write(req); err != nil {
			return fmt.Errorf("load: send: %w", err)
		}
		intended <- due // there is room: at most depth slots are taken
	}
}

// oneWay sends what gets no answer (acks=0), as fast as the socket takes it or
// every interval. A request is done when the socket has taken it.
func (p *pipe) oneWay(ctx context.Context, x exchange, interval time.Duration, bytes, records func() int64) error {
	start := p.start()
	for i := int64(0); ; i++ {
		due := time.Now()
		if interval > 0 {
			due = start.Add(time.Duration(i) * interval)
			if err := sleepUntil(ctx, due); err != nil {
				return err
			}
		} else if err := ctx.Err(); err != nil {
			return err
		}
		req := x.request()
		if req == nil {
			return nil
		}
		if _, err := p.conn.Write(req); err != nil {
			return fmt.Errorf("load: send: %w", err)
		}
		now := time.Now()
		inside, over := p.window.Done(now, bytes(), records())
		if inside {
			p.latency.RecordValue(max(1, now.Sub(due).Microseconds()))
		}
		if over {
			return nil
		}
	}
}

// sleepUntil waits for due, or for the end of ctx.
func sleepUntil(ctx context.Context, due time.Time) error {
	wait := time.Until(due)
	if wait <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
