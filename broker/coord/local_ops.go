package coord

import "github.com/tidemark-log/tidemark/storage/vfs"

// refused says why a call cannot be taken at all. Called with the lock.
func (l *Local) refused() error {
	switch {
	case l.failed != nil:
		return l.failed
	case l.closed:
		return ErrSessionExpired
	case len(l.waiting) >= waitingMax:
		return ErrThrottled
	}
	return nil
}

// change applies a transaction, writes it and queues its answer.
func (l *Local) change(txn Txn, done func([]Result, error)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.refused(); err != nil {
		l.answerNow(func() { done(nil, err) })
		return
	}
	txn.Session, txn.Time = l.session, l.env.Wall().UnixMilli()
	results, fired, err := l.tree.Apply(txn)
	if err != nil {
		// Refused on the ground of a state that may not be durable yet: wait for that.
		l.answerLater(func(failed error) {
			if failed != nil {
				results, err = nil, failed
			}
			done(results, err)
		})
		return
	}
	l.write(txn)
	for _, f := range fired {
		l.fire(f.Event)
	}
	l.answerLater(func(failed error) {
		if failed != nil {
			results = nil
		}
		done(results, failed)
	})
}

// write appends a transaction to the journal. Called with the lock.
func (l *Local) write(txn Txn) {
	l.written++
	j := &l.journal
	j.buf = appendTxn(beginEntry(j.buf[:0]), txn)
	l.append(entryTxn)
}

func (l *Local) append(kind entryKind) {
	j := &l.journal
	crc := endEntry(j.buf, 0, kind, j.crc, l.tree.zxid, j.durable)
	if _, err := j.file.WriteAt(j.buf, j.size); err != nil {
		l.fail(err)
		return
	}
	j.crc = crc
	j.size += int64(len(j.buf))
}

// fire queues the callbacks of a watch that an event used up. Called with the lock.
func (l *Local) fire(e Event) {
	kinds := []WatchKind{WatchData}
	switch e.Type {
	case NodeChildrenChanged:
		kinds = []WatchKind{WatchChildren}
	case NodeDeleted:
		kinds = []WatchKind{WatchData, WatchChildren}
	}
	for _, kind := range kinds {
		key := watchKey{kind, e.Path}
		for _, f := range l.watch[key] {
			l.waiting = append(l.waiting, answer{l.written, func(err error) {
				if err == nil {
					f(e)
				}
			}})
		}
		delete(l.watch, key)
	}
}

// Multi is Client's.
func (l *Local) Multi(ops []Op, done func([]Result, error)) {
	size := 0
	for _, op := range ops {
		size += op.size()
	}
	if len(ops) > 1 && size > MultiBytesMax {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.answerNow(func() { done(nil, ErrTooLarge) })
		return
	}
	l.change(Txn{Kind: TxnOps, Ops: ops}, done)
}

func (l *Local) one(op Op, done func(Result, error)) {
	l.change(Txn{Kind: TxnOps, Ops: []Op{op}}, func(r []Result, err error) {
		if err != nil {
			done(Result{}, err)
			return
		}
		done(r[0], nil)
	})
}

// Create is Client's.
func (l *Local) Create(path string, data []byte, mode CreateMode, done func(string, Stat, error)) {
	l.one(CreateOp(path, data, mode), func(r Result, err error) { done(r.Path, r.Stat, err) })
}

// Set is Client's.
func (l *Local) Set(path string, data []byte, version int32, done func(Stat, error)) {
	l.one(SetOp(path, data, version), func(r Result, err error) { done(r.Stat, err) })
}

// Delete is Client's.
func (l *Local) Delete(path string, version int32, done func(error)) {
	l.one(DeleteOp(path, version), func(_ Result, err error) { done(err) })
}

// read runs f on the tree and queues the answer that it gives. watch is false when the call is refused.
func (l *Local) read(f func(watch bool) (answer func(error))) {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.refused()
	answer := f(err == nil)
	if err != nil {
		l.answerNow(func() { answer(err) })
		return
	}
	l.answerLater(answer)
}

// setWatch registers a callback. Called with the lock.
func (l *Local) setWatch(kind WatchKind, path string, f func(Event)) {
	if f == nil {
		return
	}
	l.tree.Watch(kind, path, l.session)
	key := watchKey{kind, path}
	l.watch[key] = append(l.watch[key], f)
}

// Get is Client's.
func (l *Local) Get(path string, watch func(Event), done func([]byte, Stat, error)) {
	l.read(func(ok bool) func(error) {
		data, s, err := l.tree.Get(path)
		if ok && err == nil {
			l.setWatch(WatchData, path, watch)
		}
		return func(failed error) {
			if failed != nil {
				done(nil, Stat{}, failed)
				return
			}
			done(data, s, err)
		}
	})
}

// Exists is Client's.
func (l *Local) Exists(path string, watch func(Event), done func(Stat, error)) {
	l.read(func(ok bool) func(error) {
		s, err := l.tree.Exists(path)
		if ok && (err == nil || err == ErrNoNode) {
			l.setWatch(WatchData, path, watch)
		}
		return func(failed error) {
			if failed != nil {
				done(Stat{}, failed)
				return
			}
			done(s, err)
		}
	})
}

// Children is Client's.
func (l *Local) Children(path string, watch func(Event), done func([]string, Stat, error)) {
	l.read(func(ok bool) func(error) {
		names, s, err := l.tree.Children(path)
		if ok && err == nil {
			l.setWatch(WatchChildren, path, watch)
		}
		return func(failed error) {
			if failed != nil {
				done(nil, Stat{}, failed)
				return
			}
			done(names, s, err)
		}
	})
}

// Session is Client's.
func (l *Local) Session() SessionID { return l.session }

// Close is Client's. The journal then ends with a mark of a clean shutdown,
// which vouches for every byte before it.
func (l *Local) Close(done func(error)) {
	l.change(Txn{Kind: TxnCloseSession}, func(_ []Result, err error) {
		if err != nil {
			done(err)
			return
		}
		l.mu.Lock()
		l.journal.buf = beginEntry(l.journal.buf[:0])
		l.append(entryClosed)
		f := l.journal.file
		failed := l.failed
		l.mu.Unlock()
		if failed != nil {
			done(failed)
			return
		}
		l.env.Sync([]vfs.Syncer{f}, func(err error) {
			if cerr := f.Close(); err == nil {
				err = cerr
			}
			done(err)
		})
	})
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
}
