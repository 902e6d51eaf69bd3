package server

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// elementsMax bounds the array elements and tagged fields of one request. The
// decoder makes a struct for each element, and for unknown tags a map, before
// anybody can look at them: a hundred bytes of memory for each byte of the frame. So
// they are counted first, in place, and a request over the bound closes its connection.
//
// It is above what the broker answers, 100,000 topics and partitions.
const elementsMax = 200_000

// shape is the layout of a request's body, as far as counting needs it.
type shape struct {
	flexibleFrom int16
	parts        []part
}

// part is one field, or some neighbours of fixed size.
type part struct {
	kind     partKind
	size     int   // of partFixed, in bytes
	from, to int16 // the versions that have it
	item     []part
}

type partKind uint8

const (
	partFixed   partKind = iota
	partString           // also nullable
	partBytes            // also nullable
	partList             // of single values
	partStructs          // each with tagged fields behind it, in flexible versions
)

const everyVersion = 1<<15 - 1

func fixed(size int) part            { return part{kind: partFixed, size: size, to: everyVersion} }
func text() part                     { return part{kind: partString, to: everyVersion} }
func blob() part                     { return part{kind: partBytes, to: everyVersion} }
func list(item part) part            { return part{kind: partList, item: []part{item}, to: everyVersion} }
func structs(item ...part) part      { return part{kind: partStructs, item: item, to: everyVersion} }
func (p part) since(from int16) part { p.from = from; return p }
func (p part) until(to int16) part   { p.to = to; return p }

// shapes has every request that ApiVersions advertises, by key.
var shapes = map[int16]shape{
	int16(kmsg.Produce): {9, []part{text().since(3), fixed(2 + 4),
		structs(text().until(12), fixed(16).since(13),
			structs(fixed(4), blob()))}},
	int16(kmsg.Fetch): {12, []part{fixed(4).until(14), fixed(4 + 4), fixed(4).since(3), fixed(1).since(4), fixed(4 + 4).since(7),
		structs(text().until(12), fixed(16).since(13),
			structs(fixed(4), fixed(4).since(9), fixed(8), fixed(4).since(12), fixed(8).since(5), fixed(4))),
		structs(text().until(12), fixed(16).since(13), list(fixed(4))).since(7),
		text().since(11)}},
	int16(kmsg.ListOffsets): {6, []part{fixed(4), fixed(1).since(2),
		structs(text(), structs(fixed(4), fixed(4).since(4), fixed(8), fixed(4).until(0))),
		fixed(4).since(10)}},
	int16(kmsg.Metadata): {9, []part{structs(fixed(16).since(10), text()),
		fixed(1).since(4), fixed(1).since(8).until(10), fixed(1).since(8)}},
	int16(kmsg.LeaderAndISR): {4, []part{fixed(4 + 4 + 8 + 1),
		structs(text(), fixed(16), structs(fixed(4+4+4+4), list(fixed(4)), fixed(4), list(fixed(4)), list(fixed(4)), list(fixed(4)), fixed(1+1))),
		structs(fixed(4), text(), fixed(4))}},
	int16(kmsg.StopReplica): {2, []part{fixed(4 + 4 + 8),
		structs(text(), structs(fixed(4+4+1)))}},
	int16(kmsg.UpdateMetadata): {6, []part{fixed(4 + 4 + 8),
		structs(text(), fixed(16), structs(fixed(4+4+4+4), list(fixed(4)), fixed(4), list(fixed(4)), list(fixed(4)))),
		structs(fixed(4), structs(fixed(4), text(), text(), fixed(2)), text())}},
	int16(kmsg.ControlledShutdown): {3, []part{fixed(4 + 8)}},
	int16(kmsg.FindCoordinator):    {3, []part{text().until(3), fixed(1).since(1), list(text()).since(4)}},
	int16(kmsg.ApiVersions):        {3, []part{text().since(3), text().since(3), text().since(5), fixed(4).since(5)}},
	int16(kmsg.CreateTopics): {5, []part{
		structs(text(), fixed(4+2), structs(fixed(4), list(fixed(4))), structs(text(), text())),
		fixed(4), fixed(1).since(1)}},
	int16(kmsg.DeleteTopics):  {4, []part{list(text()).until(5), structs(text(), fixed(16)).since(6), fixed(4)}},
	int16(kmsg.DeleteRecords): {2, []part{structs(text(), structs(fixed(4+8))), fixed(4)}},
	int16(kmsg.InitProducerID): {2, []part{text(), fixed(4), fixed(8 + 2).since(3),
		fixed(1 + 1).since(6)}},
	int16(kmsg.OffsetForLeaderEpoch): {4, []part{fixed(4).since(3),
		structs(text(), structs(fixed(4), fixed(4).since(2), fixed(4)))}},
	int16(kmsg.DescribeConfigs): {4, []part{structs(fixed(1), text(), list(text())), fixed(1).since(1), fixed(1).since(3)}},
	int16(kmsg.AlterConfigs):    {2, []part{structs(fixed(1), text(), structs(text(), text())), fixed(1)}},
	int16(kmsg.DescribeLogDirs): {2, []part{structs(text(), list(fixed(4)))}},
	int16(kmsg.CreatePartitions): {2, []part{
		structs(text(), fixed(4), structs(list(fixed(4)))),
		fixed(4), fixed(1)}},
	int16(kmsg.IncrementalAlterConfigs): {1, []part{structs(fixed(1), text(), structs(text(), fixed(1), text())), fixed(1)}},
	int16(kmsg.DescribeCluster):         {0, []part{fixed(1), fixed(1).since(1), fixed(1).since(2)}},
}

// shapeOf is shapes as an array: it is looked into at each request.
var shapeOf = func() []*shape {
	of := make([]*shape, slices.Max(slices.Collect(maps.Keys(shapes)))+1)
	for key, s := range shapes {
		of[key] = &s
	}
	return of
}()

// checkShape counts what is in a body, and finds what is cut off, before the decoder makes
// anything of it. A request without a shape here is the decoder's alone.
func checkShape(key, version int16, body []byte) (elements int, err error) {
	if key < 0 || int(key) >= len(shapeOf) || shapeOf[key] == nil {
		return 0, nil
	}
	s := shapeOf[key]
	c := shapeCursor{rest: body, version: version, flexible: version >= s.flexibleFrom}
	c.structure(s.parts)
	switch {
	case c.elements > elementsMax:
		return c.elements, fmt.Errorf("%w: %s v%d names more than %d things", errFrameBody, kmsg.NameForKey(key), version, elementsMax)
	case c.bad:
		return c.elements, fmt.Errorf("%w: %s v%d of %d bytes is cut off", errFrameBody, kmsg.NameForKey(key), version, len(body))
	}
	return c.elements, nil
}

// shapeCursor steps through a body. Once bad, or over elementsMax, nothing moves any more.
type shapeCursor struct {
	rest     []byte
	version  int16
	flexible bool
	elements int
	bad      bool
}

func (c *shapeCursor) structure(parts []part) {
	c.parts(parts)
	if !c.flexible {
		return
	}
	for n := c.uvarint(); n > 0 && c.count(); n-- {
		c.uvarint() // its number
		c.skip(c.uvarint())
	}
}

func (c *shapeCursor) parts(parts []part) {
	for i := range parts {
		p := &parts[i]
		if c.version < p.from || c.version > p.to {
			continue
		}
		switch p.kind {
		case partFixed:
			c.skip(uint64(p.size))
		case partString:
			c.skip(c.length(2))
		case partBytes:
			c.skip(c.length(4))
		case partList:
			for n := c.length(4); n > 0 && c.count(); n-- {
				c.parts(p.item)
			}
		case partStructs:
			for n := c.length(4); n > 0 && c.count(); n-- {
				c.structure(p.item)
			}
		}
	}
}

// count takes one more element, and says whether to go on.
func (c *shapeCursor) count() bool {
	if c.bad || c.elements > elementsMax {
		return false
	}
	c.elements++
	return c.elements <= elementsMax
}

// length reads the length of a string, bytes or array: a varint of n+1, or an
// integer of so many bytes. Null, and what is negative, is 0 here.
func (c *shapeCursor) length(bytes int) uint64 {
	if c.flexible {
		return max(c.uvarint(), 1) - 1
	}
	if c.bad = c.bad || len(c.rest) < bytes; c.bad {
		return 0
	}
	n := int64(int16(binary.BigEndian.Uint16(c.rest)))
	if bytes == 4 {
		n = int64(int32(binary.BigEndian.Uint32(c.rest)))
	}
	c.rest = c.rest[bytes:]
	return uint64(max(n, 0))
}

func (c *shapeCursor) uvarint() uint64 {
	if c.bad {
		return 0
	}
	v, rest, ok := uvarint(c.rest)
	if c.bad = !ok || v > math.MaxUint32; c.bad {
		return 0
	}
	c.rest = rest
	return v
}

func (c *shapeCursor) skip(n uint64) {
	if c.bad = c.bad || n > uint64(len(c.rest)); !c.bad {
		c.rest = c.rest[n:]
	}
}
