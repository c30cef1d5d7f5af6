package gateway

// Headers of requests. The names are canonical, so that Header.Get does not make
// them so.
const (
	headerQueryPlan     = "X-Ms-Cosmos-Is-Query-Plan-Request"
	headerFeatures      = "X-Ms-Cosmos-Supported-Query-Features"
	headerBatch         = "X-Ms-Cosmos-Is-Batch-Request"
	headerBatchAtomic   = "X-Ms-Cosmos-Batch-Atomic"
	headerBatchContinue = "X-Ms-Cosmos-Batch-Continue-On-Error"
	headerQuery         = "X-Ms-Documentdb-Query"
	headerIsQuery       = "X-Ms-Documentdb-Isquery"
	headerUpsert        = "X-Ms-Documentdb-Is-Upsert"
	headerKey           = "X-Ms-Documentdb-Partitionkey"
	headerRange         = "X-Ms-Documentdb-Partitionkeyrangeid"
	headerStartEPK      = "X-Ms-Start-Epk"
	headerEndEPK        = "X-Ms-End-Epk"
	headerCross         = "X-Ms-Documentdb-Query-Enablecrosspartition"
	headerPageItems     = "X-Ms-Max-Item-Count"
	headerContinuation  = "X-Ms-Continuation"
	headerActivity      = "X-Ms-Activity-Id"
	headerDate          = "X-Ms-Date"
	headerPreTrigger    = "X-Ms-Documentdb-Pre-Trigger-Include"
	headerPostTrigger   = "X-Ms-Documentdb-Post-Trigger-Include"
	headerCollection    = "X-Ms-Cosmos-Intended-Collection-Rid"
	headerMetrics       = "X-Ms-Documentdb-Populatequerymetrics"
	headerQuota         = "X-Ms-Documentdb-Populatequotainfo"
	headerIndexMetrics  = "X-Ms-Cosmos-Populateindexmetrics"
	headerIndexMetrics2 = "X-Ms-Cosmos-Populateindexmetrics-V2"
	headerIncremental   = "A-Im"
	headerExpiry        = "X-Ms-Documentdb-Expiry-Seconds"
	headerScriptLogging = "X-Ms-Documentdb-Script-Enable-Logging"
	headerConsistency   = "X-Ms-Consistency-Level"
)

// Headers of answers.
const (
	headerCharge        = "X-Ms-Request-Charge"
	headerSession       = "X-Ms-Session-Token"
	headerSubstatus     = "X-Ms-Substatus"
	headerRetryAfter    = "X-Ms-Retry-After-Ms"
	headerItemCount     = "X-Ms-Item-Count"
	headerContentPath   = "X-Ms-Content-Path"
	headerAltPath       = "X-Ms-Alt-Content-Path"
	headerMetricsOf     = "X-Ms-Documentdb-Query-Metrics"
	headerIndexProgress = "X-Ms-Documentdb-Collection-Index-Transformation-Progress"
	headerReplacing     = "X-Ms-Offer-Replace-Pending"
	headerLeast         = "X-Ms-Cosmos-Min-Throughput"
	headerIndexUse      = "X-Ms-Cosmos-Index-Utilization"
	headerSchemaVersion = "X-Ms-Schemaversion"
	headerScriptLog     = "X-Ms-Documentdb-Script-Log-Results"
	headerLSN           = "Lsn"
	headerETag          = "Etag"
)
