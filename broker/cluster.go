package broker

// cluster is the broker's side of the coordination service.
type cluster struct {
	store store
}
