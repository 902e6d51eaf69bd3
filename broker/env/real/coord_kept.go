package real

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
)

// A process that is killed leaves its session to time out, and the one that is started in its place could register only
// after that. So the process notes its session beside its data, and the next one ends it.
//
// What makes that safe is the lock of the directory: whoever noted a session held it, and
// whoever reads the note holds it now, so the first is dead. Of that the note must be sure: it names the lock
// file itself, which a copy of the directory does not have, and the machine's boot.

// keptSession is the content of the note.
type keptSession struct {
	Version  int    `json:"version"`
	BootID   string `json:"bootID"`
	Lock     lockID `json:"lock"`
	Connect  string `json:"connect"` // the service, as zookeeper.connect names it
	Session  int64  `json:"session"`
	Password []byte `json:"password"`
}

// lockID tells a lock file from all others of the machine.
type lockID struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// sessionNote keeps a keptSession in a file.
type sessionNote struct {
	file, lock, connect string

	mu   sync.Mutex
	last keptSession // as written
	read bool
}

// sessionNoteMax is more than a note has.
const sessionNoteMax = 4096

// NoteSession has sessions noted in a file, for the next process, and the one that is noted there ended at the first
// OpenCoord. lock is a file that this process then holds the lock of, and every writer of the note did.
func (e *Env) NoteSession(file, lock string) {
	e.note = &sessionNote{file: file, lock: lock, connect: e.coord}
}

// take gives the session that the process before had, once; nil when that is not proven to be dead, or nothing is noted.
func (n *sessionNote) take() *keptSession {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.read {
		return nil
	}
	n.read = true
	b, err := os.ReadFile(n.file)
	if err != nil || len(b) > sessionNoteMax {
		return nil
	}
	_ = os.Remove(n.file)
	var k keptSession
	lock, ok := lockOf(n.lock)
	if json.Unmarshal(b, &k) != nil || k.Version != 0 || k.BootID == "" || k.BootID != bootID() || !ok || k.Lock != lock || k.Connect != n.connect || k.Session == 0 {
		return nil
	}
	return &k
}

// put notes a session. Without a note the next process waits, so what goes wrong is no matter.
func (n *sessionNote) put(session int64, password []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	lock, ok := lockOf(n.lock)
	if !ok || bootID() == "" || session == n.last.Session {
		return
	}
	k := keptSession{BootID: bootID(), Lock: lock, Connect: n.connect, Session: session, Password: password}
	b, err := json.Marshal(k)
	if err != nil {
		return
	}
	tmp := n.file + ".tmp"
	if os.WriteFile(tmp, b, 0o600) == nil && os.Rename(tmp, n.file) == nil {
		n.last = k
	}
}

func lockOf(file string) (id lockID, ok bool) {
	info, err := os.Stat(filepath.Clean(file))
	if err != nil {
		return lockID{}, false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return lockID{}, false
	}
	return lockID{uint64(st.Dev), st.Ino}, true
}

// end ends the session at a server; an error says that it may live on. The server forgets a session at once
// when it is closed, and its ephemeral nodes with it.
func (k *keptSession) end(network, address string, limit time.Duration) error {
	nc, err := net.DialTimeout(network, address, limit)
	if err != nil {
		return err
	}
	defer nc.Close()
	if err := nc.SetDeadline(time.Now().Add(limit)); err != nil {
		return err
	}
	be := binary.BigEndian
	hello := be.AppendUint32(nil, 0)                             // protocol version
	hello = be.AppendUint64(hello, 0)                            // last transaction seen
	hello = be.AppendUint32(hello, uint32(limit.Milliseconds())) // timeout
	hello = be.AppendUint64(hello, uint64(k.Session))
	hello = be.AppendUint32(hello, uint32(len(k.Password)))
	answer, err := exchange(nc, append(hello, k.Password...))
	if err != nil {
		return err
	}
	if s, ok := decodeHandshake(answer); !ok || s.session != k.Session {
		return nil // it is over already
	}
	bye := be.AppendUint32(nil, 1)
	closeOp := int32(opClose)
	answer, err = exchange(nc, be.AppendUint32(bye, uint32(closeOp)))
	if err == nil && be.Uint32(answer[12:]) != 0 {
		err = errors.New("the server does not end the session")
	}
	return err
}

// exchange writes a frame and reads the next.
func exchange(nc net.Conn, frame []byte) ([]byte, error) {
	if _, err := nc.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...)); err != nil {
		return nil, err
	}
	var head [4]byte
	if _, err := io.ReadFull(nc, head[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[:])
	if n < headerBytes || n > 1024 {
		return nil, errReply
	}
	answer := make([]byte, n)
	_, err := io.ReadFull(nc, answer)
	return answer, err
}

// handshake is what a server answers to the first frame of a connection.
type handshake struct {
	session  int64
	password []byte
}

// decodeHandshake is not ok where the session is over.
func decodeHandshake(b []byte) (h handshake, ok bool) {
	be := binary.BigEndian
	if len(b) < 20 {
		return h, false
	}
	timeout, session, n := int32(be.Uint32(b[4:])), int64(be.Uint64(b[8:])), int(be.Uint32(b[16:]))
	if timeout <= 0 || session == 0 || n < 0 || n > len(b)-20 {
		return h, false
	}
	return handshake{session, append([]byte(nil), b[20:20+n]...)}, true
}

// endTries is how often a session is ended whose end was not confirmed. A ZooKeeper closes the connection with it, often
// before the answer: the next try hears that it is over.
const endTries = 3

// endOld ends the session of the process before, unless that is done.
func (c *coordClient) endOld(network, address string, limit time.Duration) {
	c.mu.Lock()
	old := c.old
	c.mu.Unlock()
	if old == nil {
		return
	}
	for range endTries {
		err := old.end(network, address, limit)
		if err == nil {
			c.mu.Lock()
			c.old = nil
			c.mu.Unlock()
			return
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) {
			return // there is no server: the next one is asked
		}
	}
}

// noted notes a session that has begun on a connection.
func (c *coordClient) noted(w *wire, id coord.SessionID) {
	if c.note == nil || w == nil {
		return
	}
	if h, ok := w.handshake(); ok && h.session == int64(id) {
		c.note.put(h.session, h.password)
	}
}
