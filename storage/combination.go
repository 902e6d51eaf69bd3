package storage

import (
	"fmt"
	"slices"
	"strings"
)

// The values of each switch, the default first.
var (
	Engines       = []Engine{EngineLog, EngineBTree}
	BTreeKeys     = []BTreeKey{BTreeKeyOffset, BTreeKeyMessageID}
	Caches        = []Cache{CachePage, CacheProcess, CacheDirect}
	OffsetSchemes = []OffsetScheme{OffsetsLogical, OffsetsByte}
	Transfers     = []Transfer{TransferSendfile, TransferCopy, TransferMmap}
)

// Combination is one choice of the switches that exclude each other.
type Combination struct {
	Engine   Engine
	Key      BTreeKey // "" is the default
	Cache    Cache
	Offsets  OffsetScheme
	Transfer Transfer
	Sim      bool // inside the simulator
}

// Check says why a combination is not valid and what to set instead, or nil.
// This is the one table: broker start, topic configs, factorials and the
// documentation all use it.
func (c Combination) Check() error {
	if err := c.checkValues(); err != nil {
		return err
	}
	inProcess := c.Cache != CachePage || c.Engine == EngineBTree
	switch {
	case c.Engine == EngineBTree && c.Cache != CachePage:
		return fmt.Errorf("lab.storage.engine=btree reads through its own mapping: set lab.cache=page, not %s", c.Cache)
	case c.Engine == EngineBTree && c.Offsets == OffsetsByte:
		return fmt.Errorf("lab.offsets=byte means a position in a log: lab.storage.engine=btree has none; set lab.offsets=logical")
	case c.Engine != EngineBTree && c.Key == BTreeKeyMessageID:
		return fmt.Errorf("lab.btree.key=message-id needs lab.storage.engine=btree: engine %s has no index of message ids", c.Engine)
	case inProcess && c.Transfer != TransferCopy:
		return fmt.Errorf("lab.fetch.transfer=%s needs lab.storage.engine=log and lab.cache=page: with engine %s and cache %s the data is in the process; set lab.fetch.transfer=copy", c.Transfer, c.Engine, c.Cache)
	case c.Sim && (c.Engine == EngineBTree || c.Cache == CacheDirect || c.Transfer == TransferMmap):
		return fmt.Errorf("engine %s, cache %s, transfer %s: btree, direct and mmap need a real file system and do not run in the simulator", c.Engine, c.Cache, c.Transfer)
	}
	return nil
}

// checkValues refuses what is no value of a switch at all.
func (c Combination) checkValues() error {
	if c.Key == "" {
		c.Key = BTreeKeyOffset
	}
	for _, err := range []error{
		oneOf("lab.storage.engine", c.Engine, Engines),
		oneOf("lab.btree.key", c.Key, BTreeKeys),
		oneOf("lab.cache", c.Cache, Caches),
		oneOf("lab.offsets", c.Offsets, OffsetSchemes),
		oneOf("lab.fetch.transfer", c.Transfer, Transfers),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

func oneOf[T ~string](name string, value T, all []T) error {
	if slices.Contains(all, value) {
		return nil
	}
	names := make([]string, len(all))
	for i, v := range all {
		names[i] = string(v)
	}
	return fmt.Errorf("%s=%s: must be one of %s", name, value, strings.Join(names, ", "))
}

// ValidCombinations lists what Check allows, live or in the simulator, in the
// order of the value lists, Transfer varying fastest.
func ValidCombinations(sim bool) []Combination {
	var valid []Combination
	for _, engine := range Engines {
		for _, key := range BTreeKeys {
			for _, cache := range Caches {
				for _, offsets := range OffsetSchemes {
					for _, transfer := range Transfers {
						c := Combination{engine, key, cache, offsets, transfer, sim}
						if c.Check() == nil {
							valid = append(valid, c)
						}
					}
				}
			}
		}
	}
	return valid
}

// String names the choice as an experiment's cell does; lab.btree.key only where it matters.
func (c Combination) String() string {
	engine := string(c.Engine)
	if c.Engine == EngineBTree {
		engine += "-" + string(c.Key)
	}
	return fmt.Sprintf("%s/%s/%s/%s", engine, c.Cache, c.Offsets, c.Transfer)
}
