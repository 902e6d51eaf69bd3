package storage

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestValidCombinations(t *testing.T) {
	want := strings.Fields(`
		log/page/logical/sendfile log/page/logical/copy log/page/logical/mmap
		log/page/byte/sendfile log/page/byte/copy log/page/byte/mmap
		log/process/logical/copy log/process/byte/copy
		log/direct/logical/copy log/direct/byte/copy
		btree-offset/page/logical/copy btree-message-id/page/logical/copy`)
	var got []string
	for _, c := range ValidCombinations(false) {
		got = append(got, c.String())
	}
	if !slices.Equal(got, want) {
		t.Errorf("live:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = nil
	for _, c := range ValidCombinations(true) {
		got = append(got, c.String())
	}
	live := slices.DeleteFunc(want, func(s string) bool {
		return strings.Contains(s, "btree") || strings.Contains(s, "direct") || strings.Contains(s, "mmap")
	})
	if !slices.Equal(got, live) {
		t.Errorf("simulated:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(live, "\n"))
	}
}

func TestInvalidCombinationSaysWhatToSet(t *testing.T) {
	base := Combination{EngineLog, BTreeKeyOffset, CachePage, OffsetsLogical, TransferCopy, false}
	for _, tc := range []struct {
		change func(*Combination)
		says   string
	}{
		{func(c *Combination) { c.Cache, c.Transfer = CacheProcess, TransferSendfile }, "set lab.fetch.transfer=copy"},
		{func(c *Combination) { c.Cache, c.Transfer = CacheDirect, TransferMmap }, "set lab.fetch.transfer=copy"},
		{func(c *Combination) { c.Engine, c.Transfer = EngineBTree, TransferSendfile }, "set lab.fetch.transfer=copy"},
		{func(c *Combination) { c.Engine, c.Cache = EngineBTree, CacheProcess }, "set lab.cache=page"},
		{func(c *Combination) { c.Engine, c.Offsets = EngineBTree, OffsetsByte }, "set lab.offsets=logical"},
		{func(c *Combination) { c.Key = BTreeKeyMessageID }, "needs lab.storage.engine=btree"},
		{func(c *Combination) { c.Sim, c.Cache = true, CacheDirect }, "do not run in the simulator"},
		{func(c *Combination) { c.Engine = "lsm" }, "lab.storage.engine=lsm: must be one of log, btree"},
		{func(c *Combination) { c.Key = "uuid" }, "lab.btree.key=uuid: must be one of offset, message-id"},
		{func(c *Combination) { c.Cache = "" }, "lab.cache=: must be one of page, process, direct"},
		{func(c *Combination) { c.Offsets = "x" }, "must be one of logical, byte"},
		{func(c *Combination) { c.Transfer = "x" }, "must be one of sendfile, copy, mmap"},
	} {
		c := base
		tc.change(&c)
		if err := c.Check(); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%+v: %v; should say %q", c, err, tc.says)
		}
	}
	base.Key = ""
	if err := base.Check(); err != nil {
		t.Errorf("no lab.btree.key: %v", err)
	}
}

func ExampleValidCombinations() {
	for _, c := range ValidCombinations(true) {
		fmt.Println(c)
	}
	// Output:
	// log/page/logical/sendfile
	// log/page/logical/copy
	// log/page/byte/sendfile
	// log/page/byte/copy
	// log/process/logical/copy
	// log/process/byte/copy
}
