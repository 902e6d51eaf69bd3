package stat

// The exact null distributions that the intervals invert. Each function gives
// the rank k: the interval runs from the k-th smallest to the k-th largest of
// the sorted values (Walsh averages, pairwise differences, observations). It is
// the largest k for which both tails together weigh at most alpha; 0 when not
// even the outermost values reach the level.

// SignedRankCDF gives P(W <= w) of the Wilcoxon signed-rank statistic of n values,
// by counting, for every sum, the subsets of the ranks 1…n that have it.
func SignedRankCDF(n, w int) float64 {
	probabilities := signedRankDistribution(n)
	return tail(probabilities, w)
}

// signedRankDistribution holds P(W = w) for w = 0 … n(n+1)/2. Halving at each
// rank keeps the counts probabilities, so that no n overflows.
func signedRankDistribution(n int) []float64 {
	total := n * (n + 1) / 2
	p := make([]float64, total+1)
	p[0] = 1
	for rank, reach := 1, 0; rank <= n; rank++ {
		reach += rank
		for w := reach; w >= 0; w-- {
			below := 0.0
			if w >= rank {
				below = p[w-rank]
			}
			p[w] = (p[w] + below) / 2
		}
	}
	return p
}

func signedRankRank(n int, alpha float64) int {
	return largestRank(signedRankDistribution(n), alpha)
}

// rankSumDistribution holds P(U = u) of the Mann–Whitney statistic of samples of
// m and n values, u = 0 … mn. The recursion on the largest observation: it comes
// from the first sample (and then beats all n) or from the second.
func rankSumDistribution(m, n int) []float64 {
	rows := make([][]float64, m+1) // rows[i] is the distribution for samples of i and j
	for i := range rows {
		rows[i] = []float64{1}
	}
	for j := 1; j <= n; j++ {
		next := make([][]float64, m+1)
		next[0] = []float64{1}
		for i := 1; i <= m; i++ {
			p := make([]float64, i*j+1)
			fromFirst := float64(i) / float64(i+j)
			for u := range p {
				if u >= j && u-j < len(next[i-1]) {
					p[u] += fromFirst * next[i-1][u-j]
				}
				if u < len(rows[i]) {
					p[u] += (1 - fromFirst) * rows[i][u]
				}
			}
			next[i] = p
		}
		rows = next
	}
	return rows[m]
}

func rankSumRank(m, n int, alpha float64) int {
	return largestRank(rankSumDistribution(m, n), alpha)
}

// binomialRank is the rank of the sign test's interval for a median.
func binomialRank(n int, alpha float64) int {
	p := make([]float64, n+1)
	p[0] = 1
	for i := 1; i <= n; i++ {
		for k := i; k >= 0; k-- {
			below := 0.0
			if k > 0 {
				below = p[k-1]
			}
			p[k] = (p[k] + below) / 2
		}
	}
	return largestRank(p, alpha)
}

// largestRank gives the largest k with 2 · P(statistic <= k−1) <= alpha.
func largestRank(p []float64, alpha float64) int {
	sum := 0.0
	for k, at := range p {
		sum += at
		if 2*sum > alpha {
			return k
		}
	}
	return 0 // one value only: nothing to enclose
}

func tail(p []float64, upTo int) float64 {
	sum := 0.0
	for i := 0; i <= upTo && i < len(p); i++ {
		sum += p[i]
	}
	return sum
}
