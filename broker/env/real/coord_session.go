package real

import (
	"strings"

	"github.com/go-zookeeper/zk"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// eventOfLibrary hears of the library's connection and session. It runs in the library's own goroutine and must not block.
func (c *coordClient) eventOfLibrary(e zk.Event) {
	if e.Type != zk.EventSession {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.expired {
		return
	}
	switch e.State {
	case zk.StateHasSession:
		c.linked = true
		c.settle()
	case zk.StateDisconnected:
		c.linked = false
		if c.up {
			c.up = false
			c.tell(func() { c.tellState(coord.Disconnected) })
		}
		c.lose(coord.ErrConnectionLoss)
	case zk.StateExpired:
		// Before the library can do anything more: it is about to open another session.
		c.expired, c.linked = true, false
		c.hosts.close()
		c.lose(coord.ErrSessionExpired)
		c.tell(func() { c.state(coord.Expired) })
		go func() {
			<-c.ready
			c.conn.Close()
		}()
	}
}

// settle makes the client connected when the library is and nothing of an earlier connection is left. Called with the lock.
func (c *coordClient) settle() {
	if !c.linked || c.up || c.running > 0 || c.closed || c.expired {
		return
	}
	if !c.rooted {
		k := &coordCall{lost: func(error) {}, run: func() func() {
			<-c.ready
			if makeRoot(c.conn, c.chroot) {
				c.mu.Lock()
				c.rooted = true
				c.mu.Unlock()
			}
			return func() {}
		}}
		c.start(k) // settle is called again when it ends
		return
	}
	c.up = true
	c.tell(func() {
		<-c.ready
		id := coord.SessionID(c.conn.SessionID())
		c.mu.Lock()
		c.session = id
		c.old = nil // its time is over by now, or soon
		w := c.wire
		c.mu.Unlock()
		c.noted(w, id)
		c.tellState(coord.Connected)
	})
}

// makeRoot creates the chroot. It is false when the connection went; what else goes wrong the calls below it will tell.
func makeRoot(conn *zk.Conn, chroot string) bool {
	for at := 1; at <= len(chroot); at++ {
		if at < len(chroot) && chroot[at] != '/' {
			continue
		}
		_, err := conn.Create(chroot[:at], nil, 0, zk.WorldACL(zk.PermAll))
		if coordError(err) == coord.ErrConnectionLoss {
			return false
		}
	}
	return true
}

// Session is Client's.
func (c *coordClient) Session() coord.SessionID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

func (c *coordClient) tellState(s coord.SessionState) {
	if !c.over() {
		c.state(s)
	}
}

// over is true when the session has ended: then nothing is told any more, but the end itself.
func (c *coordClient) over() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed || c.expired
}

// tell runs f after all that was to be told before it. Called with the lock. As many
// wait as there are watches, and changes of state while a callback blocks.
func (c *coordClient) tell(f func()) {
	c.events = append(c.events, f)
	if !c.telling {
		c.telling = true
		go c.tellAll()
	}
}

func (c *coordClient) tellAll() {
	for {
		c.mu.Lock()
		events := c.events
		c.events = nil
		if len(events) == 0 {
			c.telling = false
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		for _, f := range events {
			f()
		}
	}
}

// addWatch makes room for a watch; false when there are too many.
func (c *coordClient) addWatch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.watches >= watchesMax {
		return false
	}
	c.watches++
	return true
}

func (c *coordClient) dropWatch() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches--
}

// await waits for a watch's event. The library closes the channel when the session ends.
func (c *coordClient) await(ch <-chan zk.Event, watch func(coord.Event)) {
	e, ok := <-ch
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watches--
	if !ok || e.Type == zk.EventNotWatching {
		return
	}
	event := coord.Event{Type: coord.EventType(e.Type), Path: c.outer(e.Path)}
	c.tell(func() {
		if !c.over() {
			watch(event)
		}
	})
}

// inner is a path as the server knows it, outer as the client does.
func (c *coordClient) inner(path string) string {
	if path == "/" && c.chroot != "" {
		return c.chroot
	}
	return c.chroot + path
}

func (c *coordClient) outer(path string) string {
	if path = strings.TrimPrefix(path, c.chroot); path == "" {
		return "/"
	}
	return path
}

// Close is Client's. done has an error when the server did not confirm in time; then the timeout ends the session.
func (c *coordClient) Close(done func(error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.expired {
		go done(coord.ErrSessionExpired)
		return
	}
	c.closed = true
	c.lose(coord.ErrSessionExpired)
	w := c.wire
	go func() {
		<-c.ready
		c.hosts.close()
		c.conn.Close() // gives up after a second, but the library goes on until the answer or its timeout
		<-c.ended
		if w != nil && w.sawClose() {
			done(nil)
			return
		}
		done(coord.ErrConnectionLoss)
	}()
}
