package server

import (
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Admin is the operator's listener (lab.admin.listener):
//
//	/healthz       200 when every log directory is online, 503 and their names when not
//	/metrics       Prometheus
//	/counters      a Snapshot as JSON
//	/debug/pprof/  profiles
type Admin struct{ http *http.Server }

// ServeAdmin serves on l, in the background. status gives the broker's part.
func (s *Server) ServeAdmin(l net.Listener, began time.Time, status func() Status) *Admin {
	snapshot := func() Snapshot { return s.Snapshot(time.Since(began), status()) }
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		if dirs := status().OfflineDirs; len(dirs) > 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			json.NewEncoder(w).Encode(map[string]any{"offline_log_dirs": dirs})
			return
		}
		w.Write([]byte("ok\n"))
	})
	mux.HandleFunc("/counters", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(snapshot())
	})
	mux.Handle("/metrics", promhttp.HandlerFor(s.registry(snapshot), promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	a := &Admin{http: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}}
	s.serving.Go(func() {
		if err := a.http.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			s.options.Log.Error("admin listener ended", "err", err)
		}
	})
	return a
}

// Close ends the listener and its connections.
func (a *Admin) Close() { a.http.Close() }
