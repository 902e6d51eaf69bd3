package zkserver

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/tidemark-log/tidemark/broker/coord"
)

type quiet struct{}

func (quiet) Printf(string, ...any) {}

// library connects go-zookeeper as it is.
func library(t *testing.T, addr string) (*zk.Conn, <-chan zk.Event) {
	t.Helper()
	conn, events, err := zk.Connect([]string{addr}, 6*time.Second, zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	waitFor(t, events, zk.StateHasSession)
	return conn, events
}

func waitFor(t *testing.T, events <-chan zk.Event, want zk.State) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case e := <-events:
			if e.State == want {
				return
			}
		case <-timeout:
			t.Fatalf("the state never became %v", want)
		}
	}
}

func TestTheLibraryWorks(t *testing.T) {
	s := listen(t, Config{})
	a, _ := library(t, s.Addr())
	b, _ := library(t, s.Addr())
	world := zk.WorldACL(zk.PermAll)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.Create("/dir", nil, 0, world)
	must(err)
	_, _, children, err := b.ChildrenW("/dir")
	must(err)
	path, err := a.Create("/dir/e-", []byte("mine"), zk.FlagEphemeral|zk.FlagSequence, world)
	must(err)
	if path != "/dir/e-0000000000" {
		t.Fatal(path)
	}
	if e := <-children; e.Type != zk.EventNodeChildrenChanged || e.Path != "/dir" {
		t.Fatal(e)
	}
	data, stat, gone, err := b.GetW(path)
	must(err)
	if string(data) != "mine" || stat.EphemeralOwner != a.SessionID() || stat.DataLength != 4 {
		t.Fatal(string(data), stat)
	}
	if _, err := b.Set(path, []byte("x"), 3); !errors.Is(err, zk.ErrBadVersion) {
		t.Fatal(err)
	}
	if _, err := b.Sync("/dir"); err != nil {
		t.Fatal(err)
	}
	if acl, _, err := b.GetACL("/dir"); err != nil || !slices.Equal(acl, world) {
		t.Fatal(acl, err)
	}
	results, err := b.Multi(&zk.CreateRequest{Path: "/dir/m", Acl: world}, &zk.CheckVersionRequest{Path: "/dir", Version: 0}, &zk.SetDataRequest{Path: "/dir", Data: []byte("set"), Version: 0})
	must(err)
	if results[0].String != "/dir/m" || results[2].Stat.Version != 1 {
		t.Fatal(results)
	}
	results, err = b.Multi(&zk.DeleteRequest{Path: "/dir/m", Version: 0}, &zk.CheckVersionRequest{Path: "/dir", Version: 9})
	if !errors.Is(err, zk.ErrBadVersion) || results[0].Error != nil || !errors.Is(results[1].Error, zk.ErrBadVersion) {
		t.Fatal(results, err)
	}
	must(a.AddAuth("digest", []byte("user:pass")))
	a.Close()
	if e := <-gone; e.Type != zk.EventNodeDeleted || e.Path != path {
		t.Fatal(e)
	}
	names, _, err := b.Children("/dir")
	must(err)
	if !slices.Equal(names, []string{"m"}) {
		t.Fatal(names)
	}
	stats, ok := zk.FLWSrvr([]string{s.Addr()}, patience)
	if !ok || stats[0].Mode != zk.ModeStandalone || stats[0].NodeCount != 3 {
		t.Fatalf("%+v", stats[0])
	}
	if !zk.FLWRuok([]string{s.Addr()}, patience)[0] {
		t.Fatal("ruok")
	}
}

// What a watch missed while its connection was gone arrives after the library has reconnected; the session stays.
func TestTheLibraryComesBackAfterALostConnection(t *testing.T) {
	s := listen(t, Config{})
	conn, events := library(t, s.Addr())
	session := conn.SessionID()
	_, _, watch, err := conn.ExistsW("/x")
	if err != nil {
		t.Fatal(err)
	}
	s.DropConnections()
	waitFor(t, events, zk.StateDisconnected)
	s.call(func() {
		if _, err := s.core.apply(coord.Txn{Kind: coord.TxnOps, Ops: []coord.Op{coord.CreateOp("/x", nil, coord.Persistent)}}); err != nil {
			panic(fmt.Sprint(err))
		}
	})
	select {
	case e := <-watch:
		if e.Type != zk.EventNodeCreated {
			t.Fatal(e)
		}
	case <-time.After(patience):
		t.Fatal("the watch did not fire")
	}
	if conn.SessionID() != session {
		t.Fatal("another session")
	}
}
