package controller

import (
	"fmt"
	"slices"
)

// Place is Kafka's placement of the replicas of n new partitions, the first of which has
// number first: leaders go round the brokers from start on, followers follow at a distance that grows by one with every
// round, so that a broker's followers are spread over all others. With racks (all brokers have one),
// brokers are taken alternately from each, and no rack gets a second replica before every one has one. start and shift are
// drawn by the caller.
func Place(brokers []Broker, n, factor, first, start, shift int) ([][]int32, error) {
	if factor < 1 || factor > len(brokers) {
		return nil, fmt.Errorf("%d replicas: there are %d live brokers", factor, len(brokers))
	}
	brokers, racks := alternate(brokers)
	start, shift = abs(start)%len(brokers), abs(shift)%len(brokers)
	out := make([][]int32, n)
	for i := range out {
		number := first + i
		if number > 0 && number%len(brokers) == 0 {
			shift++
		}
		out[i] = place(brokers, racks, factor, (number+start)%len(brokers), shift)
	}
	return out, nil
}

func place(brokers []Broker, racks, factor, leader, shift int) []int32 {
	replicas := []int32{brokers[leader].ID}
	used := []string{brokers[leader].Rack}
	for k := 0; len(replicas) < factor; k++ {
		// The followers' distances are shifted over all brokers but the leader.
		b := brokers[(leader+1+(shift*racks+k)%(len(brokers)-1))%len(brokers)]
		if slices.Contains(replicas, b.ID) || racks > 1 && slices.Contains(used, b.Rack) && len(used) < racks {
			continue
		}
		replicas = append(replicas, b.ID)
		if !slices.Contains(used, b.Rack) {
			used = append(used, b.Rack)
		}
	}
	return replicas
}

// alternate takes brokers from each rack in turn, and counts racks; by id, and 1, if not all have a rack.
func alternate(brokers []Broker) ([]Broker, int) {
	brokers = slices.Clone(brokers)
	slices.SortFunc(brokers, func(a, b Broker) int { return int(a.ID) - int(b.ID) })
	var racks []string
	for _, b := range brokers {
		if b.Rack == "" {
			return brokers, 1
		}
		racks = append(racks, b.Rack)
	}
	slices.Sort(racks)
	racks = slices.Compact(racks)
	byRack := make([][]Broker, len(racks))
	for _, b := range brokers {
		at, _ := slices.BinarySearch(racks, b.Rack)
		byRack[at] = append(byRack[at], b)
	}
	out := brokers[:0]
	for i := 0; len(out) < len(brokers); i++ {
		if r := byRack[i%len(racks)]; len(r) > 0 {
			out = append(out, r[0])
			byRack[i%len(racks)] = r[1:]
		}
	}
	return out, len(racks)
}

func abs(n int) int { return max(n, -n) }
