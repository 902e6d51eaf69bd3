package zkserver

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/tidemark-log/tidemark/storage/vfs"
)

const (
	secretName  = "session.secret"
	secretBytes = 32
)

// loadSecret reads what passwords are made of, or draws and keeps it. It is no
// protection against who can read the directory.
func loadSecret(disk vfs.FS, dir string) ([]byte, error) {
	name := path.Join(dir, secretName)
	secret := make([]byte, secretBytes)
	f, err := disk.Open(name, vfs.ReadOnly)
	if err == nil {
		defer f.Close()
		if n, _ := f.ReadAt(secret, 0); n != secretBytes {
			return nil, fmt.Errorf("%s is damaged: without it no session of before can come back; delete it to go on", name)
		}
		return secret, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	return secret, writeSecret(disk, dir, secret)
}

func writeSecret(disk vfs.FS, dir string, secret []byte) error {
	tmp := path.Join(dir, secretName+".tmp")
	f, err := disk.Open(tmp, vfs.Create|vfs.ReadWrite|vfs.Truncate)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(secret, 0)
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = disk.Rename(tmp, path.Join(dir, secretName))
	}
	if err == nil {
		err = disk.SyncDir(dir)
	}
	return err
}
