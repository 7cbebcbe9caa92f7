// Argo runs the GitOps engine of Argo CD: a cache of the whole cluster, syncs with waves and hooks, its three ways to
// tell a difference, and pruning.
//
//	argo                       checks all of that
//	argo keep NAMESPACE FILE   holds a set of objects, as `keep` does with other tools
package main

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"strings"

	"github.com/argoproj/gitops-engine/pkg/cache"
	"github.com/argoproj/gitops-engine/pkg/sync"
	"github.com/argoproj/gitops-engine/pkg/sync/common"
	"github.com/argoproj/gitops-engine/pkg/utils/kube"
	"github.com/argoproj/gitops-engine/pkg/utils/tracing"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"

	"hanse.test/clients/check"
)

//go:embed set.yaml
var set string

// Objects that carry this annotation are managed, as Argo CD knows them by its tracking id.
const mark = "clients.hanse.test/argo"

// world is what every check needs.
type world struct {
	config  *rest.Config
	client  kubernetes.Interface
	kubectl *kube.KubectlCmd
	cluster cache.ClusterCache
	name    string
}

func main() {
	klog.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", check.Kubeconfig())
	if err != nil {
		panic(err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	kubectl := &kube.KubectlCmd{Log: logr.Discard(), Tracer: tracing.NopTracer{}}
	cluster := cache.NewClusterCache(config, cache.SetLogr(logr.Discard()), cache.SetKubectl(kubectl),
		cache.SetPopulateResourceInfoHandler(func(object *unstructured.Unstructured, _ bool) (any, bool) {
			marked := object.GetAnnotations()[mark]
			return marked, marked != ""
		}))
	w := &world{config: config, client: kubernetes.NewForConfigOrDie(config), kubectl: kubectl, cluster: cluster,
		name: check.Unique("clients-argo")}
	if len(os.Args) == 4 && os.Args[1] == "keep" {
		w.keep(os.Args[2], os.Args[3])
		return
	}
	stopWorkloads := w.runWorkloads()
	defer stopWorkloads()

	suite := &check.Suite{}
	suite.Run("the cluster's cache syncs", w.cacheSyncs)
	suite.Run("a dry run keeps nothing", w.dryRun)
	suite.Run("a set is synced in waves, with hooks", w.syncWaves)
	suite.Run("the cache follows, and knows who owns what", w.cacheFollows)
	w.checkDiffs(suite)
	suite.Run("drift is corrected by a sync", w.correct)
	suite.Run("an object is replaced", w.replace)
	suite.Run("a sync goes over to server-side apply", w.serverSide)
	suite.Run("a bad object fails alone and is named", w.refused)
	suite.Run("what left the set is pruned, and only if asked", w.prune)
	suite.Run("the whole set is pruned", w.pruneAll)
	suite.Exit()
}

// objects is the set as it stands in the source, marked.
func (w *world) objects(t *check.T) []*unstructured.Unstructured {
	return w.marked(t, strings.ReplaceAll(set, "NAME", w.name))
}

func (w *world) marked(t *check.T, set string) []*unstructured.Unstructured {
	objects, err := kube.SplitYAML([]byte(set))
	t.Must(err, "read the set")
	for _, object := range objects {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[mark] = w.name
		object.SetAnnotations(annotations)
	}
	return objects
}

// resources is the set without hooks.
func (w *world) resources(t *check.T) []*unstructured.Unstructured {
	var resources []*unstructured.Unstructured
	for _, object := range w.objects(t) {
		if object.GetAnnotations()[common.AnnotationKeyHook] == "" {
			resources = append(resources, object)
		}
	}
	return resources
}

func find(t *check.T, objects []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	for _, object := range objects {
		if object.GetKind() == kind && object.GetName() == name {
			return object
		}
	}
	t.Failf("no %s %s", kind, name)
	return nil
}

func (w *world) isManaged(resource *cache.Resource) bool { return resource.Info == w.name }

// sync goes on as Argo CD's controller does: each round compares anew and goes on from the state of the last one.
func (w *world) sync(t *check.T, objects []*unstructured.Unstructured, options ...sync.SyncOpt) []common.ResourceSyncResult {
	phase, message, results, started := common.OperationRunning, "", []common.ResourceSyncResult(nil), metav1.Now()
	t.Eventually("the sync", func() error {
		live, err := w.cluster.GetManagedLiveObjs(objects, w.isManaged)
		t.Must(err, "look for live objects")
		// Copied, for a later option must not overwrite an earlier round's.
		all := append(append([]sync.SyncOpt(nil), options...), sync.WithLogr(logr.Discard()),
			sync.WithInitialState(phase, message, results, started),
			sync.WithNamespaceModifier(func(_, live *unstructured.Unstructured) (bool, error) { return live == nil, nil }))
		pairs := sync.Reconcile(objects, live, w.name, w.cluster)
		operation, cleanup, err := sync.NewSyncContext("revision", pairs, w.config, w.config, w.kubectl, w.name, w.cluster.GetOpenAPISchema(), all...)
		t.Must(err, "begin")
		defer cleanup()
		operation.Sync()
		phase, message, results = operation.GetState()
		if !phase.Completed() {
			return fmt.Errorf("%s: %s", phase, message)
		}
		return nil
	})
	t.Want(phase != common.OperationError, "no error: %s", message)
	return results
}

// synced demands that all went well.
func synced(t *check.T, results []common.ResourceSyncResult, count int) {
	for _, result := range results {
		t.Want(result.Status == common.ResultCodeSynced || result.HookPhase == common.OperationSucceeded,
			"%s synced, not %s: %s", result.ResourceKey, result.Status, result.Message)
	}
	t.Want(len(results) == count, "%d results, not %d", count, len(results))
}

func (w *world) live(t *check.T, object *unstructured.Unstructured) *unstructured.Unstructured {
	live, err := w.kubectl.GetResource(t.Context(), w.config, object.GroupVersionKind(), object.GetName(), object.GetNamespace())
	t.Must(err, "get %s %s", object.GetKind(), object.GetName())
	return live
}

func (w *world) cacheSyncs(t *check.T) {
	t.Must(w.cluster.EnsureSynced(), "sync")
	t.Want(strings.HasPrefix(w.cluster.GetServerVersion(), "1."), "a version, not %q", w.cluster.GetServerVersion())
	t.Want(len(w.cluster.GetAPIResources()) > 30, "resources, not %d", len(w.cluster.GetAPIResources()))
	for _, kind := range []schema.GroupVersionKind{{Version: "v1", Kind: "ConfigMap"}, {Group: "apps", Version: "v1", Kind: "Deployment"}} {
		t.Want(w.cluster.GetOpenAPISchema().LookupResource(kind) != nil, "%s in the OpenAPI schema", kind)
		t.Want(w.cluster.GetGVKParser().Type(kind) != nil, "%s in the parser", kind)
	}
	namespaced, err := w.cluster.IsNamespaced(schema.GroupKind{Group: "apps", Kind: "Deployment"})
	t.Must(err, "ask for the scope")
	t.Want(namespaced, "a namespaced Deployment")
}

func (w *world) dryRun(t *check.T) {
	results := w.sync(t, w.resources(t), sync.WithOperationSettings(true, false, false, true))
	synced(t, results, len(w.resources(t)))
	_, err := w.client.CoreV1().Namespaces().Get(t.Context(), w.name, metav1.GetOptions{})
	t.Refused(err, apierrors.IsNotFound, "get the namespace")
}

func (w *world) syncWaves(t *check.T) {
	objects := w.objects(t)
	// One more: the namespace.
	synced(t, w.sync(t, objects), len(objects)+1)
	// The order in which the server met them is the order of the waves.
	order := map[string]string{}
	for _, object := range w.resources(t) {
		order[object.GetKind()] = w.live(t, object).GetCreationTimestamp().UTC().String()
	}
	t.Want(order["CustomResourceDefinition"] <= order["Deployment"] && order["Deployment"] <= order["Boat"], "waves in order, not %v", order)
	w.live(t, find(t, objects, "ConfigMap", "done"))
	hook := find(t, objects, "Job", "migrate")
	// The engine deletes it in the foreground: it goes when the server has found that nothing belongs to it.
	t.Eventually("the hook that was to be deleted", func() error {
		_, err := w.kubectl.GetResource(t.Context(), w.config, hook.GroupVersionKind(), hook.GetName(), w.name)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("is still there: %v", err)
	})
}

func (w *world) cacheFollows(t *check.T) {
	owner, err := w.client.AppsV1().Deployments(w.name).Get(t.Context(), "web", metav1.GetOptions{})
	t.Must(err, "get")
	replicas := replicaSet(owner)
	_, err = w.client.AppsV1().ReplicaSets(w.name).Create(t.Context(), replicas, metav1.CreateOptions{})
	t.Must(err, "create a dependent")
	root := kube.NewResourceKey("apps", "Deployment", w.name, "web")
	t.Eventually("the tree", func() error {
		var kinds []string
		w.cluster.IterateHierarchyV2([]kube.ResourceKey{root}, func(resource *cache.Resource, _ map[kube.ResourceKey]*cache.Resource) bool {
			kinds = append(kinds, resource.Ref.Kind)
			return true
		})
		if len(kinds) != 2 {
			return fmt.Errorf("has %v", kinds)
		}
		return nil
	})
	// Written by another, and seen by the cache's watch of a resource that was defined after the cache had started.
	boat := find(t, w.resources(t), "Boat", "cog")
	t.Eventually("the custom resource", func() error {
		if len(w.cluster.FindResources(w.name, func(r *cache.Resource) bool { return r.Ref.Kind == boat.GetKind() })) != 1 {
			return fmt.Errorf("is not in the cache")
		}
		return nil
	})
}

// meddle changes a live object as another client would.
func (w *world) meddle(ctx context.Context, object *unstructured.Unstructured, patch string) error {
	_, err := w.kubectl.PatchResource(ctx, w.config, object.GroupVersionKind(), object.GetName(), object.GetNamespace(), types.MergePatchType, []byte(patch))
	return err
}

func (w *world) correct(t *check.T) {
	objects := w.resources(t)
	settings, boat := find(t, objects, "ConfigMap", "settings"), find(t, objects, "Boat", "cog")
	t.Must(w.meddle(t.Context(), settings, `{"data":{"course":"south"}}`), "meddle")
	t.Must(w.meddle(t.Context(), boat, `{"spec":{"harbour":"Visby"}}`), "meddle")
	w.seen(t, objects, true)
	synced(t, w.sync(t, objects), len(objects))
	course, _, _ := unstructured.NestedString(w.live(t, settings).Object, "data", "course")
	harbour, _, _ := unstructured.NestedString(w.live(t, boat).Object, "spec", "harbour")
	t.Want(course == "north" && harbour == "Lübeck", "both corrected, not %s and %s", course, harbour)
	w.seen(t, objects, false)
}

func (w *world) replace(t *check.T) {
	objects := w.resources(t)
	settings := find(t, objects, "ConfigMap", "settings")
	t.Must(w.meddle(t.Context(), settings, `{"data":{"extra":"cargo"}}`), "meddle")
	annotations := settings.GetAnnotations()
	annotations[common.AnnotationSyncOptions] = common.SyncOptionReplace
	settings.SetAnnotations(annotations)
	synced(t, w.sync(t, objects), len(objects))
	data, _, _ := unstructured.NestedStringMap(w.live(t, settings).Object, "data")
	t.Want(len(data) == 1, "only what is in the set, not %v", data)
}

func (w *world) serverSide(t *check.T) {
	objects := w.resources(t)
	results := w.sync(t, objects, sync.WithServerSideApply(true), sync.WithServerSideApplyManager("argocd-controller"),
		sync.WithClientSideApplyMigration(true, common.DefaultClientSideApplyMigrationManager))
	synced(t, results, len(objects))
	applied := false
	for _, entry := range w.live(t, find(t, objects, "Deployment", "web")).GetManagedFields() {
		t.Want(entry.Manager != common.DefaultClientSideApplyMigrationManager, "fields of client-side apply migrated")
		applied = applied || entry.Manager == "argocd-controller" && entry.Operation == metav1.ManagedFieldsOperationApply
	}
	t.Want(applied, "fields applied")
}

func (w *world) refused(t *check.T) {
	objects := w.resources(t)
	bad := find(t, objects, "Service", "web").DeepCopy()
	bad.SetName("bad")
	t.Must(unstructured.SetNestedField(bad.Object, "sideways", "spec", "type"), "change")
	results := w.sync(t, append(objects, bad))
	for _, result := range results {
		if result.ResourceKey.Name == "bad" {
			t.Want(result.Status == common.ResultCodeSyncFailed && strings.Contains(result.Message, "spec.type"), "a refusal, not %v", result)
			return
		}
	}
	t.Failf("no result for the bad object")
}

func (w *world) prune(t *check.T) {
	objects := w.resources(t)
	var kept []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() != "Secret" {
			kept = append(kept, object)
		}
	}
	secret := find(t, objects, "Secret", "login")
	status := func(results []common.ResourceSyncResult) common.ResultCode {
		for _, result := range results {
			if result.ResourceKey == kube.GetResourceKey(secret) {
				return result.Status
			}
		}
		return ""
	}
	t.Want(status(w.sync(t, kept)) == common.ResultCodePruneSkipped, "not pruned unless asked")
	w.live(t, secret)
	t.Want(status(w.sync(t, kept, sync.WithPrune(true))) == common.ResultCodePruned, "pruned")
	w.gone(t, secret)
}

func (w *world) pruneAll(t *check.T) {
	foreground := metav1.DeletePropagationForeground
	for _, result := range w.sync(t, nil, sync.WithPrune(true), sync.WithPrunePropagationPolicy(&foreground)) {
		t.Want(result.Status == common.ResultCodePruned, "%s pruned, not %s: %s", result.ResourceKey, result.Status, result.Message)
	}
	for _, object := range w.resources(t) {
		w.gone(t, object)
	}
	t.Must(w.client.CoreV1().Namespaces().Delete(t.Context(), w.name, metav1.DeleteOptions{}), "delete the namespace")
	t.Eventually("the namespace", func() error {
		_, err := w.client.CoreV1().Namespaces().Get(t.Context(), w.name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("is still there (%v)", err)
	})
}

func (w *world) gone(t *check.T, object *unstructured.Unstructured) {
	t.Eventually(object.GetKind()+" "+object.GetName(), func() error {
		_, err := w.kubectl.GetResource(t.Context(), w.config, object.GroupVersionKind(), object.GetName(), object.GetNamespace())
		if err == nil {
			return fmt.Errorf("is still there")
		}
		return nil
	})
}
