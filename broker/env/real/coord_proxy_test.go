package real_test

import (
	"io"
	"net"
	"sync"
	"testing"
)

// proxy forwards TCP connections to a server, until it is cut.
type proxy struct {
	l  net.Listener
	to string

	mu    sync.Mutex
	isCut bool
	taken int
	conns map[net.Conn]struct{}
	wg    sync.WaitGroup
}

func newProxy(t testing.TB, to string) *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{l: l, to: to, conns: map[net.Conn]struct{}{}}
	p.wg.Add(1)
	go p.accept()
	t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.l.Addr().String() }

func (p *proxy) accept() {
	defer p.wg.Done()
	for {
		in, err := p.l.Accept()
		if err != nil {
			return
		}
		p.forward(in)
	}
}

func (p *proxy) forward(in net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.isCut {
		in.Close()
		return
	}
	out, err := net.Dial("tcp", p.to)
	if err != nil {
		in.Close()
		return
	}
	p.taken++
	p.conns[in], p.conns[out] = struct{}{}, struct{}{}
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		p.wg.Add(1)
		go func() {
			defer p.wg.Done()
			_, _ = io.Copy(pair[0], pair[1])
			in.Close()
			out.Close()
			p.mu.Lock()
			defer p.mu.Unlock()
			delete(p.conns, in)
			delete(p.conns, out)
		}()
	}
}

// refuse lets no new connection come about; cut also ends those that are there.
func (p *proxy) refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = true
}

func (p *proxy) cut() {
	p.refuse()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.isCut = false
}

// count is how many connections it has forwarded.
func (p *proxy) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

func fourLetterWord(t testing.TB, addr, word string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, word); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
