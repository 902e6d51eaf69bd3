package real_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/coord/zkserver"
	"github.com/tidemark-log/tidemark/internal/zookeepertest"
	"github.com/tidemark-log/tidemark/storage/vfs"
)

// BenchmarkConditionalWrites makes the controller's writes: check of an epoch and set of
// a partition's state in one multi, on 256 nodes, as many at once as the adapter allows.
func BenchmarkConditionalWrites(b *testing.B) {
	b.Run("server=embedded", func(b *testing.B) { conditionalWrites(b, embedded(b).Addr()) })
	b.Run("server=embedded-durable", func(b *testing.B) {
		s, err := zkserver.Listen("127.0.0.1:0", zkserver.Config{Disk: vfs.NewReal(b.TempDir(), nil), Dir: "zk"})
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		conditionalWrites(b, s.Addr())
	})
	b.Run("server=zookeeper", func(b *testing.B) { conditionalWrites(b, zookeepertest.Start(b).Addr) })
	b.Run("server=zookeeper-durable", func(b *testing.B) { conditionalWrites(b, zookeepertest.StartIn(b, b.TempDir()).Addr) })
}

func conditionalWrites(b *testing.B, addr string) {
	c, _ := open(b, addr, 30*time.Second)
	const nodes = 256
	var setUp []coord.Op
	for i := range nodes {
		setUp = append(setUp, coord.CreateOp(fmt.Sprintf("/n%d", i), make([]byte, 100), coord.Persistent))
	}
	setUp = append(setUp, coord.CreateOp("/epoch", nil, coord.Persistent))
	done := make(chan error, 1)
	coord.Bulk(c, setUp, func(err error) { done <- err })
	if err := within(b, done, "the set-up"); err != nil {
		b.Fatal(err)
	}
	data := make([]byte, 100)
	room := make(chan struct{}, nodes)
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		room <- struct{}{}
		wg.Add(1)
		path := fmt.Sprintf("/n%d", i%nodes)
		c.Multi([]coord.Op{coord.CheckOp("/epoch", 0), coord.SetOp(path, data, coord.AnyVersion)}, func(_ []coord.Result, err error) {
			if err != nil {
				b.Error(err)
			}
			<-room
			wg.Done()
		})
	}
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}
