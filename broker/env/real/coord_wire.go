package real

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// Of ZooKeeper's protocol what the wire looks at.
const (
	opCreate    = 1
	opCreate2   = 15
	opClose     = -11
	statBytes   = 68
	headerBytes = 16 // of a reply: transaction number, zxid, error
	// Replies may be larger than requests: the names of all topics, say.
	replyBytesMax = 64 << 20
)

var errReply = errors.New("the server's answer is malformed")

// wire stands between the library and the socket. It hands the library whole and sane
// answers alone (others make it panic), bounds the time that it waits for the
// answer to its handshake (ten times too long otherwise), turns its create into
// create2, whose answer also has the node's metadata, and notices the answer to a close.
type wire struct {
	net.Conn
	patience time.Duration // for an answer to the handshake
	r        *bufio.Reader
	frame    []byte // what of a frame the library has not read yet
	frames   int    // read
	wrote    bool   // the handshake

	mu      sync.Mutex
	ops     map[int32]int32       // of the requests without an answer, by transaction number
	created map[string]coord.Stat // by path, until the call takes it
	closed  bool                  // the server has confirmed the session's end
	hello   []byte                // its answer to the handshake
}

func newWire(nc net.Conn, patience time.Duration) *wire {
	return &wire{Conn: nc, patience: patience, r: bufio.NewReader(nc), ops: map[int32]int32{}, created: map[string]coord.Stat{}}
}

// Write passes a frame on; the library writes each in one piece.
func (w *wire) Write(p []byte) (int, error) {
	if !w.wrote || len(p) < 12 {
		w.wrote = true
		return w.Conn.Write(p)
	}
	xid, op := int32(binary.BigEndian.Uint32(p[4:])), int32(binary.BigEndian.Uint32(p[8:]))
	if op == opCreate {
		op = opCreate2
	}
	w.mu.Lock()
	if xid >= 0 { // not a ping
		w.ops[xid] = op
	}
	w.mu.Unlock()
	if op != opCreate2 {
		return w.Conn.Write(p)
	}
	head := bytes.Clone(p[:12])
	binary.BigEndian.PutUint32(head[8:], opCreate2)
	n, err := (&net.Buffers{head, p[12:]}).WriteTo(w.Conn)
	return int(n), err
}

// Read gives bytes of whole frames.
func (w *wire) Read(p []byte) (int, error) {
	if len(w.frame) == 0 {
		if err := w.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, w.frame)
	w.frame = w.frame[n:]
	return n, nil
}

func (w *wire) next() error {
	var head [4]byte
	if _, err := io.ReadFull(w.r, head[:]); err != nil {
		return err
	}
	least, most := uint32(headerBytes), uint32(replyBytesMax)
	if w.frames == 0 {
		least, most = 20, 1024 // the answer to the handshake
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < least || n > most {
		return errReply
	}
	var b bytes.Buffer // grows with what arrives, not with what was promised
	b.Write(head[:])
	if _, err := io.CopyN(&b, w.r, int64(n)); err != nil {
		return err
	}
	w.frame = b.Bytes()
	if w.frames++; w.frames == 1 {
		w.mu.Lock()
		w.hello = bytes.Clone(w.frame[4:])
		w.mu.Unlock()
		return nil
	}
	return w.reply(w.frame[4:])
}

// reply looks into an answer or an event.
func (w *wire) reply(b []byte) error {
	xid, code := int32(binary.BigEndian.Uint32(b)), int32(binary.BigEndian.Uint32(b[12:]))
	body := b[headerBytes:]
	if xid == xidEvent && !saneEvent(body) {
		return errReply
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	op, ok := w.ops[xid]
	delete(w.ops, xid)
	if !ok || code != 0 {
		return nil
	}
	if !saneReply(op, body) {
		return errReply
	}
	switch op {
	case opClose:
		w.closed = true
	case opCreate2:
		r := replyReader{b: body, ok: true}
		path := r.string()
		w.created[path] = r.stat()
	}
	return nil
}

// takeCreated gives the metadata of a node that was just created here.
func (w *wire) takeCreated(path string) (coord.Stat, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.created[path]
	delete(w.created, path)
	return s, ok
}

// handshake is what the server answered to the first frame.
func (w *wire) handshake() (handshake, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return decodeHandshake(w.hello)
}

func (w *wire) sawClose() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.closed
}

// SetReadDeadline bounds the handshake. The library takes the deadline away between the
// length and the body of its answer, and sets one before every later read.
func (w *wire) SetReadDeadline(t time.Time) error {
	if t.IsZero() {
		return nil
	}
	if limit := time.Now().Add(w.patience); w.frames == 0 && t.After(limit) {
		t = limit
	}
	return w.Conn.SetReadDeadline(t)
}
