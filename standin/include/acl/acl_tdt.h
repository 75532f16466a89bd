// Channels of tensors between host and device.
#ifndef STANDIN_ACL_TDT_H
#define STANDIN_ACL_TDT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct acltdtDataItem acltdtDataItem;
typedef struct acltdtDataset acltdtDataset;
typedef struct acltdtChannelHandle acltdtChannelHandle;

acltdtDataItem *acltdtCreateDataItem(int tensorType, const int64_t *dimensions, size_t dimensionCount, int dataType,
                                     void *data, size_t size);
int acltdtDestroyDataItem(acltdtDataItem *item);
int acltdtGetTensorTypeFromItem(const acltdtDataItem *item);
int acltdtGetDataTypeFromItem(const acltdtDataItem *item);
void *acltdtGetDataAddrFromItem(const acltdtDataItem *item);
size_t acltdtGetDataSizeFromItem(const acltdtDataItem *item);
size_t acltdtGetDimNumFromItem(const acltdtDataItem *item);
int acltdtGetDimsFromItem(const acltdtDataItem *item, int64_t *dimensions, size_t room);
int acltdtGetSliceInfoFromItem(const acltdtDataItem *item, size_t *sliceCount, size_t *sliceNumber);

acltdtDataset *acltdtCreateDataset(void);
int acltdtDestroyDataset(acltdtDataset *dataset);
int acltdtAddDataItem(acltdtDataset *dataset, acltdtDataItem *item);
acltdtDataItem *acltdtGetDataItem(const acltdtDataset *dataset, size_t index);
size_t acltdtGetDatasetSize(const acltdtDataset *dataset);
const char *acltdtGetDatasetName(const acltdtDataset *dataset);

// A timeout of -1 waits for ever.
acltdtChannelHandle *acltdtCreateChannel(uint32_t device, const char *name);
acltdtChannelHandle *acltdtCreateChannelWithCapacity(uint32_t device, const char *name, size_t capacity);
int acltdtStopChannel(acltdtChannelHandle *channel);
int acltdtDestroyChannel(acltdtChannelHandle *channel);
int acltdtSendTensor(const acltdtChannelHandle *channel, const acltdtDataset *dataset, int32_t timeoutMs);
int acltdtReceiveTensor(const acltdtChannelHandle *channel, acltdtDataset *dataset, int32_t timeoutMs);
int acltdtQueryChannelSize(const acltdtChannelHandle *channel, size_t *size);
int acltdtCleanChannel(acltdtChannelHandle *channel);

#ifdef __cplusplus
}
#endif

#endif
