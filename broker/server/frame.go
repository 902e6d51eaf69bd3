package server

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// The frame, as Kafka defines it: an int32 length, then a request header, then
// the body that the header's key and version name.
//
//	header v0/v1   api_key int16, api_version int16, correlation_id int32, client_id nullable string
//	header v2      the same, then tagged fields; used by every "flexible" request version
//
// (v0, without the client id, belongs to ControlledShutdown v0 alone, which no
// client sends and this broker does not serve.)
const (
	lengthBytes    = 4
	headerBytesMin = 2 + 2 + 4 + 2
)

// apiVersions is the one request whose response header never became flexible:
// a client sends it before it knows what the broker understands (KIP-511).
const apiVersions = int16(kmsg.ApiVersions)

const produce = int16(kmsg.Produce)

// errorUnsupportedVersion is Kafka's UNSUPPORTED_VERSION.
const errorUnsupportedVersion = 35

// Everything that a client can get wrong about a frame. The connection is
// closed and one line is logged; other connections do not notice.
var (
	errFrameLength  = errors.New("bad frame length")
	errFrameHeader  = errors.New("malformed request header")
	errFrameBody    = errors.New("malformed request body")
	errUnsupported  = errors.New("unsupported request")
	errBufferBudget = errors.New("request buffers exhausted")
)

// header is a request header, decoded. clientID aliases the frame.
type header struct {
	key, version  int16
	correlationID int32
	clientID      []byte
}

// frameLength checks the length prefix against max (socket.request.max.bytes).
func frameLength(prefix []byte, max int) (int, error) {
	n := int(int32(binary.BigEndian.Uint32(prefix)))
	switch {
	case n < headerBytesMin-2: // a header of a request with no client id at all
		return 0, fmt.Errorf("%w: %d bytes is shorter than any request header", errFrameLength, n)
	case n > max:
		return 0, fmt.Errorf("%w: %d bytes is over socket.request.max.bytes=%d (a TLS or HTTP client on this port looks like this too)", errFrameLength, n, max)
	}
	return n, nil
}

// parseHeader decodes the part of the header that does not depend on the
// version of the request. rest begins with the tagged fields when there are any.
func parseHeader(frame []byte) (h header, rest []byte, err error) {
	if len(frame) < headerBytesMin {
		return h, nil, fmt.Errorf("%w: %d bytes", errFrameHeader, len(frame))
	}
	h.key = int16(binary.BigEndian.Uint16(frame))
	h.version = int16(binary.BigEndian.Uint16(frame[2:]))
	h.correlationID = int32(binary.BigEndian.Uint32(frame[4:]))
	n := int(int16(binary.BigEndian.Uint16(frame[8:])))
	rest = frame[headerBytesMin:]
	if n > len(rest) || n < -1 {
		return h, nil, fmt.Errorf("%w: client id of %d bytes with %d left", errFrameHeader, n, len(rest))
	}
	if n > 0 {
		h.clientID, rest = rest[:n:n], rest[n:]
	}
	return h, rest, nil
}

// skipTags steps over the tagged fields of a flexible header.
func skipTags(b []byte) ([]byte, error) {
	count, b, ok := uvarint(b)
	if !ok || count > uint64(len(b)) {
		return nil, fmt.Errorf("%w: tagged fields", errFrameHeader)
	}
	for ; count > 0; count-- {
		var size uint64
		if _, b, ok = uvarint(b); ok {
			size, b, ok = uvarint(b)
		}
		if !ok || size > uint64(len(b)) {
			return nil, fmt.Errorf("%w: tagged fields", errFrameHeader)
		}
		b = b[size:]
	}
	return b, nil
}

func uvarint(b []byte) (uint64, []byte, bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, false
	}
	return v, b[n:], true
}

// decodeBody decodes what follows the header. Record bytes alias rest; strings
// are copies, since handlers keep topic names.
func decodeBody(h header, rest []byte) (body kmsg.Request, err error) {
	body = kmsg.RequestForKey(h.key)
	if body == nil {
		return nil, fmt.Errorf("%w: api key %d", errUnsupported, h.key)
	}
	return body, decodeInto(body, h, rest, body.ReadFrom)
}

// decodeInto decodes what follows the header into body, by read.
func decodeInto(body kmsg.Request, h header, rest []byte, read func([]byte) error) error {
	if h.version < 0 || h.version > body.MaxVersion() {
		return fmt.Errorf("%w: api key %d version %d", errUnsupported, h.key, h.version)
	}
	body.SetVersion(h.version)
	if body.IsFlexible() {
		var err error
		if rest, err = skipTags(rest); err != nil {
			return err
		}
	}
	if _, err := checkShape(h.key, h.version, rest); err != nil {
		return err
	}
	if err := read(rest); err != nil {
		return fmt.Errorf("%w: %s v%d of %d bytes: %v", errFrameBody, kmsg.NameForKey(h.key), h.version, len(rest), err)
	}
	return nil
}

// produceBuffer is the one produce request that a connection decodes into again and
// again: Handle keeps nothing of it (see broker.Request), strings included.
type produceBuffer struct{ req kmsg.ProduceRequest }

// topicsKept bounds what stays for the next request.
const topicsKept = 64

func (p *produceBuffer) decode(h header, rest []byte) (kmsg.Request, error) {
	return &p.req, decodeInto(&p.req, h, rest, p.req.UnsafeReadFrom)
}

// clear lets go of the frame that the request aliases.
func (p *produceBuffer) clear() {
	topics := p.req.Topics[:0]
	if clear(p.req.Topics); cap(topics) > topicsKept {
		topics = nil
	}
	p.req = kmsg.ProduceRequest{Topics: topics}
}

// appendResponseHeader begins a response: room for the length, the correlation
// id and, for a flexible response, no tagged fields.
func appendResponseHeader(dst []byte, key int16, correlationID int32, flexible bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if flexible && key != apiVersions {
		dst = append(dst, 0)
	}
	return dst
}

// apiVersionsFallback is the answer to an ApiVersions request of a version that
// this broker does not know: version 0, error 35, and the range it does know, so
// that the client can ask again (KIP-511).
func apiVersionsFallback(supports func(key, version int16) bool) kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = 0
	resp.ErrorCode = errorUnsupportedVersion
	key := kmsg.NewApiVersionsResponseApiKey()
	key.ApiKey = apiVersions
	for supports(apiVersions, key.MaxVersion+1) {
		key.MaxVersion++
	}
	resp.ApiKeys = append(resp.ApiKeys, key)
	return resp
}
