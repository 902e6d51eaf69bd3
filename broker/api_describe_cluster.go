package broker

import "github.com/twmb/franz-go/pkg/kmsg"

// DescribeCluster, versions 0-2. Left out: authorized operations, racks, controllers as an endpoint type of their own.

const endpointTypeBrokers = 1

func (b *Broker) describeCluster(req *kmsg.DescribeClusterRequest, local string) *kmsg.DescribeClusterResponse {
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	resp.Default()
	resp.EndpointType = endpointTypeBrokers
	resp.ClusterID = b.meta.Load().clusterID
	resp.ControllerID = b.static.BrokerID
	resp.ClusterAuthorizedOperations = authorizedOperationsNone
	if req.Version >= 1 && req.EndpointType != endpointTypeBrokers {
		const mismatchedEndpointType = 114
		resp.ErrorCode, resp.ErrorMessage = mismatchedEndpointType, ptr("this cluster has brokers only")
		return resp
	}
	node := kmsg.NewDescribeClusterResponseBroker()
	node.NodeID = b.static.BrokerID
	node.Host, node.Port = b.advertised(local)
	resp.Brokers = []kmsg.DescribeClusterResponseBroker{node}
	return resp
}
