package storage

import (
	"encoding/binary"

	"go.etcd.io/bbolt"

	"github.com/tidemark-log/tidemark/storage/record"
)

// messageID is the key of one record in the index of message ids, as long as a UUID.
type messageID [16]byte

// messageIDOf hashes an offset (two rounds of splitmix64): a different, evenly spread id for each.
func messageIDOf(offset int64) (id messageID) {
	high := splitmix64(uint64(offset))
	binary.BigEndian.PutUint64(id[:], high)
	binary.BigEndian.PutUint64(id[8:], splitmix64(high^uint64(offset)))
	return id
}

func splitmix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// putMessageIDs indexes every record of a batch.
func putMessageIDs(ids *bbolt.Bucket, h record.Header) error {
	values := make([]byte, 8*h.RecordCount) // bbolt keeps them until the commit
	for i := range int64(h.RecordCount) {
		id, value := messageIDOf(h.BaseOffset+i), values[8*i:8*i+8]
		binary.BigEndian.PutUint64(value, uint64(h.BaseOffset+i))
		if err := ids.Put(id[:], value); err != nil {
			return err
		}
	}
	return nil
}

// deleteMessageIDs forgets every record of a batch.
func deleteMessageIDs(ids *bbolt.Bucket, h record.Header) error {
	for i := range int64(h.RecordCount) {
		id := messageIDOf(h.BaseOffset + i)
		if err := ids.Delete(id[:]); err != nil {
			return err
		}
	}
	return nil
}
