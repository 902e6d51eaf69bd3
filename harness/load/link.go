package load

import (
	"context"
	"net"
	"sync"
	"time"
)

// dialer adapts a Dial to franz-go's option.
func dialer(d Dial) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, addr string) (net.Conn, error) { return d(ctx, addr) }
}

// Link is a network link of limited rate, shared by all connections made
// through its Dial: a token bucket for each direction, in the driver, so that
// the broker's side stays plain TCP and sendfile works.
type Link struct{ up, down bucket }

// linkBurst is how long a link may send at full speed after being idle.
const linkBurst = 5 * time.Millisecond

// NewLink makes a link of so many bytes per second each way.
func NewLink(bytesPerS int64) *Link {
	return &Link{up: bucket{rate: float64(bytesPerS)}, down: bucket{rate: float64(bytesPerS)}}
}

// Dial connects through the link.
func (l *Link) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := DialTCP(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &linkConn{Conn: conn, link: l, chunk: l.up.chunk()}, nil
}

// bucket hands out time slots: what it has lent is paid back by waiting.
type bucket struct {
	rate float64 // bytes per second
	mu   sync.Mutex
	free time.Time // when all that was taken has passed
}

// chunk is what is moved at once: about a burst, so that waiting is even.
func (b *bucket) chunk() int { return max(1024, int(b.rate*linkBurst.Seconds())) }

// take reserves n bytes and waits until they have passed.
func (b *bucket) take(n int) {
	b.mu.Lock()
	now := time.Now()
	if earliest := now.Add(-linkBurst); b.free.Before(earliest) {
		b.free = earliest
	}
	b.free = b.free.Add(time.Duration(float64(n) / b.rate * float64(time.Second)))
	wait := b.free.Sub(now)
	b.mu.Unlock()
	if wait > 0 {
		time.Sleep(wait)
	}
}

type linkConn struct {
	net.Conn
	link  *Link
	chunk int
}

func (c *linkConn) Write(b []byte) (int, error) {
	done := 0
	for done < len(b) {
		part := b[done:min(done+c.chunk, len(b))]
		c.link.up.take(len(part))
		n, err := c.Conn.Write(part)
		done += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

func (c *linkConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b[:min(len(b), c.chunk)])
	c.link.down.take(n)
	return n, err
}
