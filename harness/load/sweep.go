package load

import (
	"context"
	"time"
)

// Point is one rate of a sweep and what came of it.
type Point struct {
	Asked, Reached float64 // records per second
	P50, P99       time.Duration
}

// Sustained is true when the rate asked for was reached within a twentieth.
func (p Point) Sustained() bool { return p.Reached >= 0.95*p.Asked }

// Sweep raises the rate from low by a quarter each time until run no longer
// sustains it, then halves the last step steps times. It gives all points in the
// order they were run, and the highest rate sustained: the knee. At most
// maxPoints are run.
func Sweep(ctx context.Context, low float64, steps int, run func(ctx context.Context, rate float64) (Point, error)) (points []Point, knee float64, err error) {
	const maxPoints = 64
	try := func(rate float64) (bool, error) {
		p, err := run(ctx, rate)
		if err != nil {
			return false, err
		}
		points = append(points, p)
		if p.Sustained() {
			knee = max(knee, rate)
		}
		return p.Sustained(), nil
	}
	rate, good, bad := low, 0.0, 0.0
	for bad == 0 && len(points) < maxPoints {
		ok, err := try(rate)
		if err != nil {
			return points, knee, err
		}
		if ok {
			good, rate = rate, rate*1.25
		} else {
			bad = rate
		}
	}
	for range steps {
		if bad == 0 || len(points) >= maxPoints {
			break
		}
		mid := (good + bad) / 2
		ok, err := try(mid)
		if err != nil {
			return points, knee, err
		}
		if ok {
			good = mid
		} else {
			bad = mid
		}
	}
	return points, knee, nil
}
