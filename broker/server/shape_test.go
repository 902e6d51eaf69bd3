package server

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
)

// fill puts something into every field of a request: two of each element, so that a
// field that the shape forgets, or has too much, moves all that follows.
func fill(v reflect.Value, rnd *rand.Rand) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name == "UnknownTags" && rnd.IntN(2) == 0 {
				tags := v.Field(i).Addr().Interface().(*kmsg.Tags)
				tags.Set(90, []byte("ninety"))
				tags.Set(91, nil)
			} else if name != "Version" && name != "UnknownTags" && v.Field(i).CanSet() {
				fill(v.Field(i), rnd)
			}
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(make([]byte, rnd.IntN(300)))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range 2 {
			fill(v.Index(i), rnd)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), rnd)
		}
	case reflect.String:
		v.SetString(strings.Repeat("n", rnd.IntN(300)))
	case reflect.Pointer:
		if v.SetZero(); rnd.IntN(2) == 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem(), rnd)
		}
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		v.SetUint(rnd.Uint64N(256))
	default:
		v.SetInt(int64(rnd.IntN(127)))
	}
}

func TestEveryRequestThatIsServedHasItsShape(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, api := range broker.APIs() {
		for version := api.Min; version <= api.Max; version++ {
			for range 20 {
				req := kmsg.RequestForKey(api.Key)
				req.SetVersion(version)
				fill(reflect.ValueOf(req).Elem(), rnd)
				body := req.AppendTo(nil)
				s := shapes[api.Key]
				c := shapeCursor{rest: body, version: version, flexible: version >= s.flexibleFrom}
				c.structure(s.parts)
				if c.bad || len(c.rest) > 0 || c.flexible != req.IsFlexible() {
					t.Fatalf("%s v%d of %d bytes: bad=%v, %d bytes left", kmsg.NameForKey(api.Key), version, len(body), c.bad, len(c.rest))
				}
				if n := len(body); n > 0 {
					if _, err := checkShape(api.Key, version, body[:n-1]); !errors.Is(err, errFrameBody) {
						t.Fatalf("%s v%d: one byte short: %v", kmsg.NameForKey(api.Key), version, err)
					}
				}
			}
		}
	}
}

// What the decoder makes of a frame can be a hundred times its length. A frame of
// nothing but elements is refused before it makes anything.
func TestFrameOfCountlessElementsIsRefusedBeforeDecoding(t *testing.T) {
	const n = 1 << 20
	tagged := binary.AppendUvarint(nil, n+1)
	for range n {
		tagged = append(tagged, 1, 1, 9, 0) // an empty name, and one tag
	}
	names := make([]byte, 4+2*n)
	binary.BigEndian.PutUint32(names, n)
	for _, c := range []struct {
		what    string
		key     kmsg.Key
		version int16
		body    []byte
	}{
		{"topics without a name", kmsg.Metadata, 1, names},
		{"topics with a tag each", kmsg.Metadata, 9, append(tagged, 0, 0, 0, 0)},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := decodeBody(header{key: int16(c.key), version: c.version}, c.body)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errFrameBody) {
			t.Errorf("%s: %v", c.what, err)
		}
		if made := after.TotalAlloc - before.TotalAlloc; made > 64<<10 {
			t.Errorf("%s: %d bytes were allocated for a frame of %d", c.what, made, len(c.body))
		}
	}
}
