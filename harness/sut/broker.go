package sut

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// BrokerSpec says how to start a broker.
type BrokerSpec struct {
	Binary    string // the tidemark executable
	Dir       string // its data directory is Dir/data
	Overrides map[string]string
	Cgroup    *Cgroup
	Log       string // as in ProcessSpec

	Descriptors int // as in ProcessSpec
}

// Broker is a broker under test: a data directory, and the process that serves
// it now. Its methods are for one goroutine.
type Broker struct {
	spec BrokerSpec
	proc *Process

	Addr  string // host:port of the Kafka listener
	Admin string // host:port of the admin listener
}

// OwnSettings are those that Start and StartCluster give every broker: a data directory that no
// other uses, free ports, and its place in a cluster.
var OwnSettings = []string{"listeners", "lab.admin.listener", "log.dirs", "log.dir", "zookeeper.connect", "broker.id"}

// stopGrace is how long a clean shutdown may take.
const stopGrace = 30 * time.Second

// StartBroker starts a broker on free loopback ports and waits until it serves.
func StartBroker(ctx context.Context, s BrokerSpec) (*Broker, error) {
	b := &Broker{spec: s}
	if err := os.MkdirAll(b.DataDir(), 0o755); err != nil {
		return nil, fmt.Errorf("sut: %w", err)
	}
	return b, b.Start(ctx)
}

// DataDir is where the broker keeps its logs.
func (b *Broker) DataDir() string { return filepath.Join(b.spec.Dir, "data") }

// Process is the process that serves now, or served last.
func (b *Broker) Process() *Process { return b.proc }

// Set changes an override from the next start on; an empty value removes it.
func (b *Broker) Set(key, value string) {
	b.spec.Overrides = maps.Clone(b.spec.Overrides)
	if b.spec.Overrides == nil {
		b.spec.Overrides = map[string]string{}
	}
	if b.spec.Overrides[key] = value; value == "" {
		delete(b.spec.Overrides, key)
	}
}

// Args are the arguments with which Start starts it.
func (b *Broker) Args() []string {
	settings := map[string]string{
		"listeners":          "PLAINTEXT://127.0.0.1:0",
		"lab.admin.listener": "127.0.0.1:0",
		"log.dirs":           b.DataDir(),
	}
	maps.Copy(settings, b.spec.Overrides)
	args := []string{"broker"}
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		args = append(args, "--set", key+"="+settings[key])
	}
	return args
}

// Start starts the broker again, on new ports.
func (b *Broker) Start(ctx context.Context) error {
	proc, err := Start(ctx, ProcessSpec{
		Path: b.spec.Binary, Args: b.Args(), Ready: func(line string) bool { return readyLine.MatchString(line) }, Cgroup: b.spec.Cgroup, Log: b.spec.Log,
		Descriptors: b.spec.Descriptors,
	})
	if err != nil {
		return err // and the process that served last is still known
	}
	b.proc = proc
	m := readyLine.FindStringSubmatch(b.proc.ReadyLine())
	b.Addr, b.Admin = m[1], m[2]
	return nil
}

// readyLine is what the broker says when it serves.
var readyLine = regexp.MustCompile(`^tidemark broker ready listener=([^\s,]+)\S*(?: admin=(\S+))?`)

// Stop shuts the broker down cleanly.
func (b *Broker) Stop() error { return b.proc.Stop(stopGrace) }

// Kill ends it with kill -9.
func (b *Broker) Kill() { b.proc.Kill() }

// LogFiles gives the total size of the files below the data directory with one of the suffixes, in bytes.
func (b *Broker) LogFiles(suffixes ...string) (int64, error) {
	var total int64
	err := eachFile(b.DataDir(), func(f *os.File) error {
		if !slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(f.Name(), s) }) {
			return nil
		}
		st, err := f.Stat()
		if err == nil {
			total += st.Size()
		}
		return err
	})
	return total, err
}
