package server

import (
	"encoding/binary"
	"errors"

	"github.com/tidemark-log/tidemark/broker"
)

// outBufferBytesKept is the largest encoding buffer that a connection keeps
// between answers; a metadata answer of a thousand topics needs more, once.
const outBufferBytesKept = 64 << 10

// errAskedToClose: the broker's answer said Close.
var errAskedToClose = errors.New("closed by the broker's answer")

// outBuffer is where answers are encoded.
type outBuffer struct{ b []byte }

// writeBatch writes answers in order: neighbours without regions in one system
// call. It is called by whoever is the pipeline's writer.
func (c *conn) writeBatch(batch []*pending) error {
	c.out.b = c.out.b[:0]
	first := 0 // the first answer not yet written
	for i, q := range batch {
		closing := q.answer.Close
		switch {
		case q.answer.Silent:
		case q.answer.Fetch != nil:
			if err := c.writeFetch(q, q.answer.Fetch); err != nil {
				return err
			}
		default:
			c.out.b = appendAnswer(c.out.b, q)
		}
		if closing || i == len(batch)-1 || len(c.out.b) >= outBufferBytesKept {
			if err := c.flush(false); err != nil {
				return err
			}
			c.server.metrics.answered(batch[first:i+1], c.server.metrics.now())
			first = i + 1
		}
		if closing {
			return errAskedToClose
		}
	}
	if cap(c.out.b) > outBufferBytesKept {
		c.out.b = nil
	}
	return nil
}

func (c *conn) flush(more bool) error {
	if len(c.out.b) == 0 {
		return nil
	}
	err := c.sock.write(c.out.b, nil, more)
	c.out.b = c.out.b[:0]
	return err
}

// appendAnswer encodes an answer that is all bytes.
func appendAnswer(dst []byte, q *pending) []byte {
	start := len(dst)
	dst = appendResponseHeader(dst, q.key, q.correlationID, q.flexible)
	q.answer.Body.SetVersion(q.version)
	dst = q.answer.Body.AppendTo(dst)
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-lengthBytes))
	return dst
}

// writeFetch writes a fetch answer: encoded bytes and regions in turn. What is
// encoded before a region leaves together with it.
func (c *conn) writeFetch(q *pending, f *broker.FetchAnswer) error {
	start := len(c.out.b)
	c.out.b = appendResponseHeader(c.out.b, q.key, q.correlationID, q.flexible)
	binary.BigEndian.PutUint32(c.out.b[start:], uint32(len(c.out.b)-start-lengthBytes+f.Size()))
	for i := range f.Parts {
		part := &f.Parts[i]
		c.out.b = append(c.out.b, part.Head...)
		r := &part.Region
		if r.Len == 0 {
			continue
		}
		var err error
		if r.Bytes != nil {
			err = c.sock.write(c.out.b, r.Bytes, false)
		} else {
			err = c.server.transfer(c.sock, c.out.b, r)
		}
		if err != nil {
			return err
		}
		c.out.b = c.out.b[:0]
		c.server.counters.Delivered(int64(r.Len))
		r.Release() // no longer than it takes: retention and truncation may be waiting for it
	}
	c.out.b = append(c.out.b, f.Tail...)
	return nil
}
