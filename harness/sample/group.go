package sample

import (
	"context"
	"maps"
)

// Group samples several processes as if they were one: what a cluster did.
type Group []*Sampler

// Take reads every process now and adds up. The moments differ by what one reading takes.
func (g Group) Take(ctx context.Context) (Snapshot, error) {
	var sum Snapshot
	for i, s := range g {
		one, err := s.Take(ctx)
		if err != nil {
			return sum, err
		}
		if i == 0 {
			sum = one
			continue
		}
		sum.add(one)
	}
	return sum, nil
}

// add adds another process's part. Time and machine stay those of the first.
func (s *Snapshot) add(o Snapshot) {
	s.CPU += o.CPU
	s.RSS += o.RSS
	s.RSSAnon += o.RSSAnon
	s.Switches += o.Switches
	s.Read += o.Read
	s.Written += o.Written
	if s.Broker == nil || o.Broker == nil {
		s.Broker = nil // a sum that lacks one is none
		return
	}
	sum := *s.Broker
	sum.Syscalls, sum.Requests = added(sum.Syscalls, o.Broker.Syscalls), added(sum.Requests, o.Broker.Requests)
	sum.ToUser += o.Broker.ToUser
	sum.ToKernel += o.Broker.ToKernel
	sum.InKernel += o.Broker.InKernel
	sum.Delivered += o.Broker.Delivered
	sum.Status.LogEndOffsets += o.Broker.Status.LogEndOffsets
	s.Broker = &sum
}

func added(a, b map[string]int64) map[string]int64 {
	sum := maps.Clone(a)
	if sum == nil {
		sum = map[string]int64{}
	}
	for name, n := range b {
		sum[name] += n
	}
	return sum
}

// RSS is the resident set of all processes now, in bytes.
func (g Group) RSS() (int64, error) {
	var sum int64
	for _, s := range g {
		rss, err := s.RSS()
		if err != nil {
			return 0, err
		}
		sum += rss
	}
	return sum, nil
}
