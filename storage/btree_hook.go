package storage

import "fmt"

// openBTree opens a partition under the btree engine.
func openBTree(d *Dir, path string, cfg LogConfig, now int64) (Log, RecoveryReport, error) {
	return nil, RecoveryReport{}, fmt.Errorf("%s: lab.storage.engine=btree is not built in", path)
}
