// The graph engine's list of error texts. Every library that includes its header enters its texts while it is loaded, by
// inline code that knows where the list is: so this one object has to exist, as it is in CANN.
#include <cstdint>
#include <map>
#include <string>

namespace ge {

class StatusFactory {
public:
    __attribute__((visibility("default"))) static StatusFactory *Instance();

private:
    std::map<uint32_t, std::string> texts_;
};

StatusFactory *StatusFactory::Instance() {
    // Never destroyed: libraries that are unloaded after this one still have it.
    static StatusFactory *const instance = new StatusFactory;
    return instance;
}

}  // namespace ge
