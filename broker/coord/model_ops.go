package coord

// The calls of Client, made into modelCalls.

// Session is Client's.
func (c *ModelClient) Session() SessionID { return c.session }

// Multi is Client's.
func (c *ModelClient) Multi(ops []Op, done func([]Result, error)) {
	size := 0
	for _, op := range ops {
		size += op.size()
	}
	k := &modelCall{kind: TxnOps, ops: cloneOps(ops), done: func(r modelReply) { done(r.results, r.err) }}
	if len(ops) > 1 && size > MultiBytesMax {
		c.refuse(k, ErrTooLarge)
		return
	}
	c.begin(k)
}

// cloneOps copies what the caller may change while the call is on its way.
func cloneOps(ops []Op) []Op {
	all := make([]Op, len(ops))
	for i, op := range ops {
		op.Data = append([]byte(nil), op.Data...)
		all[i] = op
	}
	return all
}

func (c *ModelClient) one(op Op, done func(Result, error)) {
	c.begin(&modelCall{kind: TxnOps, ops: cloneOps([]Op{op}), done: func(r modelReply) {
		if r.err != nil {
			done(Result{}, r.err)
			return
		}
		done(r.results[0], nil)
	}})
}

// Create is Client's.
func (c *ModelClient) Create(path string, data []byte, mode CreateMode, done func(string, Stat, error)) {
	c.one(CreateOp(path, data, mode), func(r Result, err error) { done(r.Path, r.Stat, err) })
}

// Set is Client's.
func (c *ModelClient) Set(path string, data []byte, version int32, done func(Stat, error)) {
	c.one(SetOp(path, data, version), func(r Result, err error) { done(r.Stat, err) })
}

// Delete is Client's.
func (c *ModelClient) Delete(path string, version int32, done func(error)) {
	c.one(DeleteOp(path, version), func(_ Result, err error) { done(err) })
}

// Get is Client's.
func (c *ModelClient) Get(path string, watch func(Event), done func([]byte, Stat, error)) {
	c.begin(&modelCall{
		path: path, watch: watch, table: tableData,
		read: func(t *Tree) (r modelReply) {
			r.data, r.stat, r.err = t.Get(path)
			return r
		},
		done: func(r modelReply) { done(r.data, r.stat, r.err) },
	})
}

// Exists is Client's.
func (c *ModelClient) Exists(path string, watch func(Event), done func(Stat, error)) {
	c.begin(&modelCall{
		path: path, watch: watch, table: tableExists,
		read: func(t *Tree) (r modelReply) {
			r.stat, r.err = t.Exists(path)
			return r
		},
		done: func(r modelReply) { done(r.stat, r.err) },
	})
}

// Children is Client's.
func (c *ModelClient) Children(path string, watch func(Event), done func([]string, Stat, error)) {
	c.begin(&modelCall{
		path: path, watch: watch, table: tableChild,
		read: func(t *Tree) (r modelReply) {
			r.names, r.stat, r.err = t.Children(path)
			return r
		},
		done: func(r modelReply) { done(r.names, r.stat, r.err) },
	})
}

// Close is Client's.
func (c *ModelClient) Close(done func(error)) {
	k := &modelCall{kind: TxnCloseSession, done: func(r modelReply) { done(r.err) }}
	switch {
	case c.ended || c.closing:
		c.refuse(k, ErrSessionExpired)
	case !c.online: // the timeout ends the session
		c.end()
		c.refuse(k, ErrConnectionLoss)
	default:
		c.begin(k)
		c.closing = true
		k.done = func(r modelReply) {
			if !c.ended {
				c.end()
				c.failAll(ErrSessionExpired)
			}
			done(r.err)
		}
	}
}
