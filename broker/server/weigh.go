package server

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tidemark-log/tidemark/broker"
)

// What an answer takes in memory until it is written, roughly, in bytes: its parts,
// as far as a short request can ask for many. Answers of other kinds are in
// proportion to their requests, which count by their length.
const (
	fetchPartWeight       = 160 // the part, and its encoded head
	topicWeight           = 150
	partitionWeight       = 130
	configWeight          = 250
	logDirPartitionWeight = 80
)

// weigh says how much of Options.InFlightBytesMax an answer takes beside its request's
// share: a client that asks and does not read would otherwise gather answers
// that are hundreds of times longer than its requests.
func weigh(a *broker.Answer) (bytes int64) {
	if a.Fetch != nil {
		return int64(len(a.Fetch.Parts)) * fetchPartWeight
	}
	switch r := a.Body.(type) {
	case *kmsg.MetadataResponse:
		for i := range r.Topics {
			bytes += topicWeight + int64(len(r.Topics[i].Partitions))*partitionWeight
		}
	case *kmsg.CreateTopicsResponse:
		for i := range r.Topics {
			bytes += topicWeight + int64(len(r.Topics[i].Configs))*configWeight
		}
	case *kmsg.DescribeConfigsResponse:
		for i := range r.Resources {
			bytes += topicWeight + int64(len(r.Resources[i].Configs))*configWeight
		}
	case *kmsg.DescribeLogDirsResponse:
		for i := range r.Dirs {
			for j := range r.Dirs[i].Topics {
				bytes += topicWeight + int64(len(r.Dirs[i].Topics[j].Partitions))*logDirPartitionWeight
			}
		}
	}
	return bytes
}
