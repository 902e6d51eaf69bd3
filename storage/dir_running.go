package storage

import (
	"encoding/json"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

// runningFile says in which broker epoch, on which boot of the machine, the directory is
// in use. A process that is killed loses nothing that it wrote: the page cache
// outlives it, as long as the machine runs. So a file that names the present boot proves of its
// epoch what the mark of a clean shutdown proves. It needs no sync: what a power cut may
// do to it does not matter, since another boot follows.
const runningFile = "lab_running"

type runningMark struct {
	Version     int    `json:"version"`
	BrokerEpoch int64  `json:"brokerEpoch"`
	Since       int64  `json:"since"`
	BootID      string `json:"bootID"`
}

// NoteRunning notes that the directory is in use in that broker epoch, on that boot ("": not
// known), and that it has lost nothing in any epoch from 'since' on.
func (d *Dir) NoteRunning(brokerEpoch, since int64, bootID string) error {
	if bootID == "" || d.Offline() != nil {
		return nil
	}
	content, err := json.Marshal(runningMark{BrokerEpoch: brokerEpoch, Since: since, BootID: bootID})
	if err != nil {
		return err
	}
	tmp := d.file(runningFile) + tmpSuffix
	f, err := d.fs.Open(tmp, vfs.Create|vfs.Truncate)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(content, 0)
	if e := f.Close(); err == nil {
		err = e
	}
	if err != nil {
		return err
	}
	return d.fs.Rename(tmp, d.file(runningFile))
}

// SurvivedEpoch is the broker epoch that the directory was last in use in, if everything that
// was written in it, and in any from 'since' on, is still there because the machine has not been
// booted meanwhile; -1 when that is not proven.
func (d *Dir) SurvivedEpoch(bootID string) (epoch, since int64) {
	b, err := readFile(d.fs, d.file(runningFile), checkpointBytesMax)
	var mark runningMark
	if err != nil || json.Unmarshal(b, &mark) != nil || mark.Version != 0 || bootID == "" || mark.BootID != bootID {
		return -1, -1
	}
	return mark.BrokerEpoch, mark.Since
}

// disown takes back what runningFile proves: after a failed write or sync nobody knows what the
// files hold, though the machine runs on.
func (d *Dir) disown() {
	_ = d.fs.Remove(d.file(runningFile)) // a disk that fails here too is no better than one that lost power
}
