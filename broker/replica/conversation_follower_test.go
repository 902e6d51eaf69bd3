package replica

func (c *conversation) follow(w words) {
	if c.follower == nil {
		_, durable := w.m["durable"]
		c.log = c.pending
		c.follower = NewFollower(c.rules, c.log, durable)
	}
	d, err := c.follower.Become(BecomeFollower{Leader: BrokerID(w.int("leader", -1)), LeaderEpoch: w.epoch("epoch"), HW: w.int("hw", c.follower.HighWatermark()), Flushed: c.log.LogEndOffset()})
	if err != nil {
		c.say("%v", err)
	}
	c.do(d, nil)
}

func (c *conversation) followerLine(cmd string, w words) bool {
	f := c.follower
	switch cmd {
	case "stop":
		f.Stop(w.epoch("epoch"), w.int("hw", f.HighWatermark()))
	case "next":
		a := f.Next(c.now)
		switch a.Kind {
		case AskNothing:
			c.say("ask nothing before %v", a.NotBefore)
		case AskEpochEnd:
			c.say("ask %d in epoch %d: where does epoch %d end", a.Leader, a.LeaderEpoch, a.EndOf)
		case AskFetch:
			c.say("fetch from %d in epoch %d at %d, last epoch %d", a.Leader, a.LeaderEpoch, a.Offset, a.LastFetched)
		case AskFlush:
			c.say("sync first")
		}
	case "synced":
		f.Flushed(w.int("to", c.log.LogEndOffset()))
	case "ends":
		is, _ := w.epochEnd("is")
		c.do(f.EpochEnd(EpochEndReply{LeaderEpoch: w.epoch("epoch"), EndOf: w.epoch("asked"), Code: int16(w.int("code", 0)), EpochEnd: is, Now: c.now}), nil)
	case "got":
		diverging, isDiverging := w.epochEnd("diverging")
		records := w.records("records")
		_, c.refuses = w.m["refused"]
		c.do(f.Fetched(FetchReply{LeaderEpoch: w.epoch("epoch"), Offset: w.int("at", 0), Code: int16(w.int("code", 0)), LogStart: w.int("log-start", -1), HW: w.int("hw", -1),
			Diverging: diverging, IsDiverging: isDiverging, HasRecords: len(records) > 0, Now: c.now}), records)
	case "consume":
		at := w.int("at", 0)
		c.say("consumer at %d: code %d", at, f.ConsumerOffset(at))
	default:
		return false
	}
	return true
}

// do carries out what the follower wants, and says it.
func (c *conversation) do(d Do, records []memRecord) {
	f := c.follower
	if d.Stale {
		c.say("stale: dropped")
	}
	if d.HWMoved {
		c.say("hw %d", f.HighWatermark())
	}
	committed := ""
	if d.BelowHW {
		committed = ", below the high watermark"
	}
	var after Do
	switch d.Action {
	case DoTruncate:
		c.say("truncate to %d%s", d.Offset, committed)
		c.log.truncate(d.Offset)
		after = f.Truncated()
	case DoRestart:
		c.say("restart at %d", d.Offset)
		c.log.restart(d.Offset)
		after = f.Truncated()
	case DoAppend:
		c.say("append %d", len(records))
		if c.refuses {
			c.say("the log refuses them")
			f.Failed(c.now)
			return
		}
		for _, r := range records {
			c.log.append(r)
		}
		after = f.Appended()
	}
	if after.HWMoved {
		c.say("hw %d", f.HighWatermark())
	}
}
