package broker

import (
	"errors"
	"fmt"
	"path"
	"sync"

	"github.com/tidemark-log/tidemark/broker/coord"
	"github.com/tidemark-log/tidemark/broker/env"
	"github.com/tidemark-log/tidemark/storage"
)

// cluster is the broker's side of the coordination service. A cluster of one
// keeps the tree itself, in the first log directory.
//
// It needs no /controller and no partition states: nobody else could lead. The
// leader epoch of all its partitions is the version of /brokers/epochs/ID, which
// each start bumps, so that a client can tell the incarnations of a log apart.
type cluster struct {
	mu      sync.Mutex
	session coord.Client
}

// client is the present session's; calls on one that is over end with an error.
func (c *cluster) client() coord.Client {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

func (c *cluster) use(client coord.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = client
}

// metadataDir is the directory of the tree, below the first log directory.
const metadataDir = "metadata"

// coordWorld is the environment as coord.Local wants it.
type coordWorld struct{ env.Env }

func (w coordWorld) Warn(text string)  { w.Report(env.Warn, text) }
func (w coordWorld) Error(text string) { w.Report(env.Error, text) }

// topicRecord is a topic as the coordination service knows it.
type topicRecord struct {
	name       string
	id         topicID
	partitions int
	overrides  map[string]string
}

// clusterRecord is all that a starting broker reads.
type clusterRecord struct {
	id      string
	epoch   int32
	dynamic map[string]string
	topics  []topicRecord     // by name
	format  map[string]string // formatSettings that the partitions were written with; nil: not noted yet
}

// commit applies all operations or none; done is called when that is durable.
func (b *Broker) commit(ops []coord.Op, done func(error)) {
	b.cluster.client().Multi(ops, func(_ []coord.Result, err error) { done(err) })
}

// openCluster opens the tree and registers this incarnation in it.
func (b *Broker) openCluster(done func(clusterRecord, error)) {
	local, err := coord.OpenLocal(coordWorld{b.env}, path.Join(b.dirs[0].path, metadataDir))
	if err != nil {
		done(clusterRecord{}, err)
		return
	}
	b.cluster.use(local)
	local.Get(coord.ClusterIDPath, nil, func(data []byte, _ coord.Stat, err error) {
		switch {
		case errors.Is(err, coord.ErrNoNode):
			b.foundCluster(done)
		case err != nil:
			done(clusterRecord{}, err)
		default:
			id, err := coord.DecodeClusterID(data)
			if err != nil {
				done(clusterRecord{}, err)
				return
			}
			b.register(id, done)
		}
	})
}

// foundCluster makes the tree of a new cluster, all of it or nothing.
func (b *Broker) foundCluster(done func(clusterRecord, error)) {
	id := newUUID(b.env.Rand()).String()
	var ops []coord.Op
	for _, p := range coord.PersistentPaths {
		ops = append(ops, coord.CreateOp(p, nil, coord.Persistent))
	}
	ops = append(ops, coord.CreateOp(coord.ClusterIDPath, coord.EncodeClusterID(id), coord.Persistent))
	b.commit(ops, func(err error) {
		if err != nil {
			done(clusterRecord{}, err)
			return
		}
		b.register(id, done)
	})
}

// register bumps the broker's epoch and says that it is there.
func (b *Broker) register(clusterID string, done func(clusterRecord, error)) {
	epochPath := coord.BrokerEpochPath(b.static.BrokerID)
	host, port := b.advertised(b.static.Listeners[0])
	registration := coord.BrokerRegistration{Host: host, Port: port, Timestamp: b.env.Wall().UnixMilli()}
	b.cluster.client().Exists(epochPath, nil, func(s coord.Stat, err error) {
		bump := coord.SetOp(epochPath, nil, s.Version)
		epoch := s.Version + 1
		if errors.Is(err, coord.ErrNoNode) {
			bump, epoch, err = coord.CreateOp(epochPath, nil, coord.Persistent), 0, nil
		}
		if err != nil {
			done(clusterRecord{}, err)
			return
		}
		here := coord.CreateOp(coord.BrokerIDPath(b.static.BrokerID), registration.Encode(), coord.Ephemeral)
		b.commit([]coord.Op{bump, here}, func(err error) {
			if err != nil {
				done(clusterRecord{}, err)
				return
			}
			b.readCluster(clusterRecord{id: clusterID, epoch: epoch}, done)
		})
	})
}

// readCluster reads dynamic settings and topics. The reads go out together; end
// collects the first error.
func (b *Broker) readCluster(r clusterRecord, done func(clusterRecord, error)) {
	client := b.cluster.client()
	client.Children(coord.TopicsPath, nil, func(names []string, _ coord.Stat, err error) {
		if err != nil {
			done(r, err)
			return
		}
		r.topics = make([]topicRecord, len(names))
		var failed firstError
		end := newCountdown(2+2*len(names), func() {
			if err := failed.get(); err != nil {
				done(r, err)
				return
			}
			b.claimFormat(r, done)
		})
		b.readConfig(coord.StorageFormatPath, &r.format, &failed, end)
		b.readConfig(coord.BrokerConfigPath(fmt.Sprint(b.static.BrokerID)), &r.dynamic, &failed, end)
		for i, name := range names {
			t := &r.topics[i]
			t.name = name
			b.readConfig(coord.TopicConfigPath(name), &t.overrides, &failed, end)
			client.Get(coord.TopicPath(name), nil, func(data []byte, _ coord.Stat, err error) {
				if err == nil {
					var a coord.TopicAssignment
					a, err = coord.DecodeTopicAssignment(data)
					t.id, t.partitions = a.TopicID, len(a.Replicas)
				}
				if err != nil {
					failed.set(fmt.Errorf("topic %s: %w", name, err))
				}
				end.done()
			})
		}
		end.done()
	})
}

// formatSettings decide what the files of partitions look like, so they cannot
// change while there are topics: another engine would find nothing, and another
// offset scheme would find nonsense.
var formatSettings = []string{"lab.storage.engine", "lab.btree.key", "lab.offsets"}

// claimFormat holds the settings against those that the topics were written with, and notes them.
func (b *Broker) claimFormat(r clusterRecord, done func(clusterRecord, error)) {
	mine := make(map[string]string, len(formatSettings))
	same := r.format != nil
	for _, name := range formatSettings {
		mine[name] = settingByName(name).Value(&b.static)
		if mine[name] == r.format[name] {
			continue
		}
		same = false
		if unused := name == "lab.btree.key" && b.static.Log.Engine != storage.EngineBTree; r.format != nil && len(r.topics) > 0 && !unused {
			done(r, fmt.Errorf("%s=%s: the topics here were written with %s=%s; set it back, or name empty directories in log.dirs", name, mine[name], name, r.format[name]))
			return
		}
	}
	if same {
		done(r, nil)
		return
	}
	op := coord.SetOp(coord.StorageFormatPath, coord.EncodeConfig(mine), coord.AnyVersion)
	if r.format == nil {
		op = coord.CreateOp(coord.StorageFormatPath, coord.EncodeConfig(mine), coord.Persistent)
	}
	b.commit([]coord.Op{op}, func(err error) { done(r, err) })
}

// readConfig reads a node of settings, which need not be there.
func (b *Broker) readConfig(path string, into *map[string]string, failed *firstError, end *countdown) {
	b.cluster.client().Get(path, nil, func(data []byte, _ coord.Stat, err error) {
		if err == nil {
			*into, err = coord.DecodeConfig(data)
		}
		if err != nil && !errors.Is(err, coord.ErrNoNode) {
			failed.set(fmt.Errorf("%s: %w", path, err))
		}
		end.done()
	})
}

// assignment gives each of n partitions to this broker.
func (b *Broker) assignment(id topicID, n int) []byte {
	a := coord.TopicAssignment{TopicID: id, Replicas: make([][]int32, n)}
	self := []int32{b.static.BrokerID}
	for i := range a.Replicas {
		a.Replicas[i] = self
	}
	return a.Encode()
}
