package coordtest

import (
	"strings"

	"github.com/tidemark-log/tidemark/broker/coord"
)

var limitTests = []test{
	{"a node holds up to the limit and no more", []Feature{LargeNodes}, nodeLimit},
	{"a transaction above the limit is refused and the session goes on", nil, multiLimit},
}

func nodeLimit(s *suite) {
	c := s.open()
	most := strings.Repeat("x", coord.DataBytesMax)
	c.create("/most", most, coord.Persistent).ok()
	if k := c.get("/most").ok(); k.data != most {
		s.Errorf("%d bytes came back", len(k.data))
	}
	c.create("/more", most+"x", coord.Persistent).fails(coord.ErrTooLarge)
	c.set("/most", most+"x", coord.AnyVersion).fails(coord.ErrTooLarge)
	c.exists("/more", nil).fails(coord.ErrNoNode)
	if k := c.get("/most").ok(); k.stat.Version != 0 {
		s.Errorf("%+v", k.stat)
	}
}

func multiLimit(s *suite) {
	c := s.open()
	half := make([]byte, coord.MultiBytesMax/2)
	c.multi(
		coord.CreateOp(s.at("/a"), half, coord.Persistent),
		coord.CreateOp(s.at("/b"), half, coord.Persistent),
	).fails(coord.ErrTooLarge)
	c.exists("/a", nil).fails(coord.ErrNoNode)
	c.create("/small", "", coord.Persistent).ok()
	for _, st := range c.told()[1:] {
		s.Errorf("the client was told %s", st)
	}
}
