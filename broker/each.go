package broker

// eachMax bounds the calls to the coordination service that one each has in flight.
const eachMax = 32

// each calls step for 0 to n-1, some side by side: what begins a step calls end when it is over. Then it calls done. What
// calls end are callbacks of one session, which come one at a time.
func each(n int, step func(i int, end func()), done func()) {
	left := newCountdown(n, done)
	next := 0
	var one func()
	one = func() {
		if next == n {
			return
		}
		i := next
		next++
		step(i, func() {
			one()
			left.done()
		})
	}
	for range min(n, eachMax) {
		one()
	}
	left.done()
}
