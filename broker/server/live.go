package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tidemark-log/tidemark/broker"
	"github.com/tidemark-log/tidemark/broker/env/real"
	"github.com/tidemark-log/tidemark/storage"
	"github.com/tidemark-log/tidemark/storage/vfs"
	"github.com/tidemark-log/tidemark/storage/vfs/syscount"
)

// Live is a whole broker: the deciding part, its environment, its listeners.
type Live struct {
	Broker    *broker.Broker
	Server    *Server
	Counters  *syscount.Counters
	Addrs     []string // where it listens, with the ports it really has
	AdminAddr string   // "" without an admin listener

	admin     *Admin
	listeners []net.Listener
}

// sessionFile, in the first log directory, is the note of the session with the coordination service.
const sessionFile = "lab_session"

// Open listens, recovers what the log directories hold, and serves. It takes the
// ports first: a port in use is found before any file is touched.
func Open(cfg broker.Config, log *slog.Logger) (*Live, error) {
	began := time.Now()
	l := &Live{Counters: new(syscount.Counters)}
	if err := l.listen(cfg.Listeners); err != nil {
		return nil, err
	}
	var admin net.Listener
	if cfg.AdminListener != "" {
		var err error
		if admin, err = listen("lab.admin.listener", cfg.AdminListener); err != nil {
			l.closeListeners()
			return nil, err
		}
		l.listeners = append(l.listeners, admin)
		l.AdminAddr = admin.Addr().String()
	}
	files, connections := shareDescriptors(openFilesLimit(), cfg.ConnectionsMax)
	if connections < cfg.ConnectionsMax {
		log.Warn("fewer connections than max.connections are served: the process may not open more files; raise its limit (ulimit -n)",
			"max.connections", cfg.ConnectionsMax, "served", connections, "open files", openFilesLimit())
		cfg.ConnectionsMax = connections
	}
	disk := vfs.WithDescriptorCache(vfs.NewReal("", l.Counters), files)
	world := real.New(disk, log)
	world.CountPeers(l.Counters)
	if cfg.ZooKeeperConnect != "" {
		if len(cfg.AdvertisedListeners) == 0 { // other brokers are told where this one really listens
			cfg.AdvertisedListeners = []string{"PLAINTEXT://" + l.Addrs[0]}
		}
		if err := real.CheckConnectString(cfg.ZooKeeperConnect); err != nil {
			l.closeListeners()
			return nil, fmt.Errorf("zookeeper.connect=%s: %w", cfg.ZooKeeperConnect, err)
		}
		world.UseCoord(cfg.ZooKeeperConnect)
		first := cfg.LogDirs[0]
		world.NoteSession(filepath.Join(first, sessionFile), filepath.Join(first, storage.LockFile))
	}
	l.Broker = broker.New(world, cfg)
	var err error
	if l.Server, err = New(l.Broker, optionsOf(cfg, l.Counters, log)); err != nil {
		l.closeListeners()
		return nil, err
	}
	started := make(chan error, 1)
	l.Broker.Start(func(err error) { started <- err })
	if err := <-started; err != nil {
		l.Server.Close()
		l.closeListeners()
		return nil, err
	}
	if admin != nil {
		l.admin = l.Server.ServeAdmin(admin, began, l.Status)
	}
	for _, listener := range l.listeners {
		if listener != admin {
			l.Server.Serve(listener)
		}
	}
	return l, nil
}

// Descriptors of a process: half are for log files, or a quarter where connections
// want the rest; some for what is neither (locks, the metadata journal,
// checkpoints, directories being synced, the admin listener). Were connections to
// take them all, no segment could be opened, and no append would be possible.
const (
	openFilesLeast    = 64
	openFilesMost     = 1 << 16
	descriptorsBeside = 64
)

// shareDescriptors says how many log files are kept open and how many connections
// are served, where the process may open limit files and max.connections says wanted.
func shareDescriptors(limit uint64, wanted int) (files, connections int) {
	all := int(min(limit, math.MaxInt32))
	files = max(all-wanted-descriptorsBeside, all/4, openFilesLeast)
	files = min(files, max(all/2, openFilesLeast), openFilesMost)
	return files, max(1, min(wanted, all-files-descriptorsBeside))
}

// openFilesLimit is how many files the process may open.
func openFilesLimit() uint64 {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 2 * openFilesLeast
	}
	return limit.Cur
}

func optionsOf(cfg broker.Config, counters *syscount.Counters, log *slog.Logger) Options {
	return Options{
		RequestBytesMax: cfg.SocketRequestMax, BufferBytesMax: cfg.QueuedBytesMax,
		ConnectionsMax: cfg.ConnectionsMax, IdleMax: cfg.ConnectionsMaxIdle,
		InFlightMax: cfg.InflightRequestsMax, InFlightBytesMax: cfg.InflightBytesMax,
		SendBuffer: cfg.SocketSendBuffer, ReceiveBuffer: cfg.SocketReceiveBuffer,
		Transfer: cfg.Transfer, Counters: counters, Log: log,
	}
}

// listen opens the listeners of the setting "listeners": PLAINTEXT://host:port.
func (l *Live) listen(listeners []string) error {
	for _, s := range listeners {
		protocol, addr, ok := strings.Cut(s, "://")
		if !ok || !strings.EqualFold(protocol, "PLAINTEXT") {
			l.closeListeners()
			return fmt.Errorf("listeners=%s: want PLAINTEXT://host:port; TLS and SASL are not built", s)
		}
		listener, err := listen("listeners", addr)
		if err != nil {
			l.closeListeners()
			return err
		}
		l.listeners = append(l.listeners, listener)
		l.Addrs = append(l.Addrs, listener.Addr().String())
	}
	return nil
}

func listen(setting, addr string) (net.Listener, error) {
	listener, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s=%s: the port is in use by another process; stop it, or choose another port (0 takes a free one)", setting, addr)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%s=%s: this user may not listen there; ports below 1024 need privileges", setting, addr)
	case err != nil:
		return nil, fmt.Errorf("%s=%s: %w", setting, addr, err)
	}
	return listener, nil
}

func (l *Live) closeListeners() {
	for _, listener := range l.listeners {
		listener.Close()
	}
}

// Status adds up what the broker says of its partitions.
func (l *Live) Status() Status {
	b := l.Broker.Status()
	s := Status{ClusterID: b.ClusterID, Partitions: len(b.Partitions), OfflineDirs: append([]string{}, b.OfflineDirs...), FetchesWaiting: b.FetchesWaiting, BlockCache: b.BlockCache}
	for i := range b.Partitions {
		p := &b.Partitions[i]
		if p.Offline {
			s.OfflinePartitions++
			continue
		}
		s.LogStartOffsets += p.LogStartOffset
		s.HighWatermarks += p.HighWatermark
		s.LogEndOffsets += p.LogEndOffset
		s.FlushedOffsets += p.FlushedOffset
		s.LogBytes += p.Size
	}
	return s
}

// Shutdown ends gracefully: it lets another broker lead what this one leads, stops reading requests, lets the broker answer its
// long polls, flush and leave its checkpoints, and writes what is still to be
// written. When ctx ends first it says what was cut short, and closes all the same.
func (l *Live) Shutdown(ctx context.Context) error {
	// The listeners stay open meanwhile: this broker may be the controller that it has to ask,
	// followers catch up, and clients come to hear who leads now.
	gone := make(chan struct{})
	l.Broker.GiveAway(func() { close(gone) })
	give, cancel := ctx, func() {}
	if end, ok := ctx.Deadline(); ok { // the rest is for what must be flushed
		give, cancel = context.WithTimeout(ctx, time.Until(end)/2)
	}
	select {
	case <-gone:
	case <-give.Done():
	}
	cancel()
	l.Server.Drain()
	done := make(chan error, 1)
	l.Broker.Shutdown(func(err error) { done <- err })
	var err error
	select {
	case err = <-done:
		// Its answers to clients that read them are on their way.
		if e := l.Server.WaitDrained(ctx); err == nil && e != nil {
			err = fmt.Errorf("shutdown: %w", e)
		}
	case <-ctx.Done():
		err = fmt.Errorf("shutdown: the broker has not finished flushing: %w", ctx.Err())
	}
	l.Close()
	return err
}

// Close closes listeners and connections at once. What is not flushed is recovered at the next start.
func (l *Live) Close() {
	if l.admin != nil {
		l.admin.Close()
	}
	l.Server.Close()
}
